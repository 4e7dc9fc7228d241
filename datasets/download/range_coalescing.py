"""Stretches: files that lie near each other in one object are asked for at once, not one request a file."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from datasets.versions.manifest import Entry

#: Bytes of one request, unless a single file is larger.
LONGEST = 8 << 20
#: Bytes of requests that are worth a handover of their own.
SMALL = 1 << 20
#: Bytes between two files that are rather read and dropped than asked for around.
GAP = 64 << 10
#: Files of one request: what is known of them is held until they are there.
MOST = 1_000
#: Entries looked at together: those of one object need not follow each other in the manifest.
WINDOW = 10_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of one object from ``start`` up to ``stop``, and the files that lie in them, in order."""

    source: str
    etag: str | None
    entries: tuple[Entry, ...]

    @property
    def start(self) -> int:
        """Where its first file begins in the object."""
        return self.entries[0].offset

    @property
    def stop(self) -> int:
        """Where its last file ends in the object."""
        return self.entries[-1].offset + self.entries[-1].size


def stretches(entries: Iterable[Entry]) -> Iterator[Stretch]:
    """Put entries together, holding no more than a window of them."""
    waiting = iter(entries)
    while window := list(islice(waiting, WINDOW)):
        window.sort(key=lambda entry: (entry.source, entry.offset, entry.size))
        run: list[Entry] = []
        for entry in window:
            if run and not _joins(run, entry):
                yield Stretch(run[0].source, run[0].etag, tuple(run))
                run = []
            run.append(entry)
        yield Stretch(run[0].source, run[0].etag, tuple(run))


def batches(found: Iterable[Stretch], most: int) -> Iterator[list[Stretch]]:
    """Put up to ``most`` small requests together, so that handing them to a thread costs little each."""
    batch: list[Stretch] = []
    size = 0
    for stretch in found:
        batch.append(stretch)
        size += stretch.stop - stretch.start
        if len(batch) >= most or size >= SMALL:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _joins(run: list[Entry], entry: Entry) -> bool:
    first, last = run[0], run[-1]
    end = last.offset + last.size
    return (
        (entry.source, entry.etag) == (first.source, first.etag)
        and 0 <= entry.offset - end <= GAP  # less than 0: two files share bytes, and each wants them
        and entry.offset + entry.size - first.offset <= LONGEST
        and len(run) < MOST
    )
