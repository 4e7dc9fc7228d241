"""Range coalescing: neighbouring files of one object are read with one range request, not one request per file."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from datasets.versions.manifest import ManifestEntry

#: Bytes of one request at most, unless a single file is larger.
LONGEST = 8 << 20
#: Bytes of requests after which a batch is full.
SMALL = 1 << 20
#: Bytes between two files up to which it is cheaper to read and drop the gap than to send two requests.
GAP = 64 << 10
#: Files of one request at most: their entries stay in memory until they are downloaded.
MOST = 1_000
#: Entries that are sorted together: the entries of one object need not be adjacent in the manifest.
WINDOW = 10_000


@dataclass(frozen=True, slots=True)
class CoalescedRange:
    """The bytes ``[start, stop)`` of one object, and the files in them, in order of offset."""

    source: str
    etag: str | None
    entries: tuple[ManifestEntry, ...]

    @property
    def start(self) -> int:
        """Offset of the first file in the object, in bytes."""
        return self.entries[0].offset

    @property
    def stop(self) -> int:
        """Offset behind the last file in the object, in bytes."""
        return self.entries[-1].offset + self.entries[-1].size


def coalesce(entries: Iterable[ManifestEntry]) -> Iterator[CoalescedRange]:
    """Merge entries into ranges; at most ``WINDOW`` entries are held in memory."""
    remaining = iter(entries)
    while window := list(islice(remaining, WINDOW)):
        window.sort(key=lambda entry: (entry.source, entry.offset, entry.size))
        run: list[ManifestEntry] = []
        for entry in window:
            if run and not _joins(run, entry):
                yield CoalescedRange(run[0].source, run[0].etag, tuple(run))
                run = []
            run.append(entry)
        yield CoalescedRange(run[0].source, run[0].etag, tuple(run))


def batches(ranges: Iterable[CoalescedRange], most: int) -> Iterator[list[CoalescedRange]]:
    """Group up to ``most`` small requests into a batch, so that handing them to a thread costs little per request."""
    batch: list[CoalescedRange] = []
    size = 0
    for range in ranges:
        batch.append(range)
        size += range.stop - range.start
        if len(batch) >= most or size >= SMALL:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _joins(run: list[ManifestEntry], entry: ManifestEntry) -> bool:
    first, last = run[0], run[-1]
    end = last.offset + last.size
    return (
        (entry.source, entry.etag) == (first.source, first.etag)
        and 0 <= entry.offset - end <= GAP  # less than 0: two files share bytes, and each needs its own copy
        and entry.offset + entry.size - first.offset <= LONGEST
        and len(run) < MOST
    )
