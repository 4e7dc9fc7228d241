"""The job that makes a version of what was asked for: read once, packed or noted where it lies, sorted, written down.

It may be killed at any moment. Whoever takes the version up next throws away what the one before had written, and
begins again; nobody finds a version before it is whole.
"""

import errno
import hashlib
import json
import logging
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from core.services.claims import TERM, renewed_claim
from core.services.datasets.dataset_sources import HELD, checked_line, hold, split, uploads_of
from core.services.datasets.datasets import PROJECT, Datasets, new_pack
from core.services.datasets.file_sources import Sources
from core.services.datasets.manifest_index import ManifestIndex
from core.services.uploads.uploads import Uploads
from core.store import datasets as store
from core.store.database import Connection, Database
from datasets.objectstore.base import ObjectStore
from datasets.versions import external_sort, file_names, manifest_object, scenarios
from datasets.versions.archives import ByteSource, files_of
from datasets.versions.external_sort import Sorter
from datasets.versions.manifest import ManifestEntry, decode, encode, lines
from datasets.versions.packs import SourceFile, pack
from errors import BadScenario, Invalid, OriginFailed, PlatformError, StorageFull, StoreUnavailable

if TYPE_CHECKING:
    from datasets.objectstore.s3 import BucketReader, ListedObject

logger = logging.getLogger(__name__)

#: Attempts after which a registration that ended again and again is given up.
ATTEMPTS = 5
#: Objects of a bucket that are read at once, and listed ahead of those.
READERS, AHEAD = 8, 256
#: How often an object is read at most whose ETag does not fit its bytes.
READINGS = 4
_MD5 = re.compile("[0-9a-f]{32}")
#: Seconds between two words on the progress.
PACE = 0.5
#: Bytes of one line of a manifest that somebody sent.
LINE = 8 << 10


class ClaimLost(Exception):
    """Another job has claimed the version, or it was deleted."""


class DatasetRegistration:
    """Registers dataset versions. Idempotent, also after a crash at any point."""

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        uploads: Uploads,
        sources: Sources,
        versions: Datasets,
        scratch: Path,
        *,
        sort_memory: int = external_sort.HELD,
    ) -> None:
        self._database = database
        self._objects = objects
        self._uploads = uploads
        self._sources = sources
        self._versions = versions
        self._scratch = scratch
        self._sort_memory = sort_memory

    def register(self, id: str) -> None:
        """Make the version, unless somebody is at it or it is there."""
        who = secrets.token_hex(8)
        attempt = 0

        def take() -> bool:
            nonlocal attempt
            attempt = (
                self._database.write(lambda c: store.claim(c, id, who, TERM, self._database.now(c)), durable=False) or 0
            )
            return attempt > 0

        with renewed_claim(take, f"version {id}") as ours:
            if ours:
                self._guarded(id, who, attempt)

    def _guarded(self, id: str, who: str, attempt: int) -> None:
        going = _Attempt(self, id, who)
        try:
            if attempt > ATTEMPTS:
                raise Invalid(f"Its registration ended {ATTEMPTS} times in the middle; see the log.")
            self._versions.purge(id)  # what an attempt before this one left
            going.make()
        except StorageFull as error:
            self._fail(id, who, error)
        except (StoreUnavailable, OriginFailed) as error:
            if isinstance(error, OriginFailed) and (not going.begun or attempt >= ATTEMPTS):
                self._fail(id, who, error)  # what never answered is rather a wrong address
            else:
                # Whoever is away for an hour has not ended this five times. The claim runs out by itself: a pause.
                if isinstance(error, StoreUnavailable):
                    self._database.write(lambda c: store.forgive(c, id, who))
                logger.warning("version %s is tried again: %s", id, error.detail)
        except PlatformError as error:
            self._fail(id, who, error)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            self._fail(id, who, StorageFull("No room was left for it. Make room, and register it again."))
        except ClaimLost:
            logger.info("version %s is not ours any more", id)

    def _fail(self, id: str, who: str, error: PlatformError) -> None:
        reason = error.detail or "it cannot be registered"
        if self._database.write(lambda c: store.fail(c, id, who, reason, self._database.now(c))):
            logger.warning("version %s was not registered: %s", id, reason)
            self._versions.purge(id)
            with self._database.read() as c:
                row = store.by_id(c, id)
            if row is not None:
                self._versions.let_go(row)


class _Attempt:
    """One attempt at one version."""

    def __init__(self, job: DatasetRegistration, id: str, who: str) -> None:
        self._job = job
        self._id = id
        self._who = who
        self._database = job._database
        self._objects = job._objects
        self._began = self._told = time.monotonic()
        self._held_at = 0.0
        self._files = self._bytes = 0
        self._uploads: list[str] = []
        self._located = False  # whether a file was looked for, and found, in a bucket

    @property
    def begun(self) -> bool:
        """Whether a file was seen."""
        return self._files > 0

    def make(self) -> None:
        """Go through source, manifest and description, and make the version ready."""
        with self._database.read() as c:
            row = store.by_id(c, self._id)
        if row is None:
            raise ClaimLost
        source = json.loads(row.source)
        self._uploads = uploads_of(source)
        self._job._scratch.mkdir(parents=True, exist_ok=True)
        with self._sorted(self._entries(row, source)) as entries:
            manifest = f"manifests/{self._id}/{secrets.token_hex(8)}"
            self._refer(manifest)
            self._refer(manifest_object.index_of(manifest))
            written = manifest_object.write(self._objects, manifest, entries)
        if written.files == 0:
            raise Invalid("There is not one file in it.")
        values = {"manifest": manifest, "digest": written.digest, "files": written.files, "bytes": written.bytes}
        values["described"] = self._described(manifest)

        def finish(c: Connection) -> Any:
            return store.finish(c, self._id, self._who, values, self._database.now(c), located=self._located)

        finished = self._database.write(finish)
        if finished is None:
            raise ClaimLost
        for upload in self._uploads:
            self._job._uploads.let_go(upload)
        if finished.manifest != manifest:  # it was here, and is found where it was
            self._job._versions.purge(self._id)

    # -- what it is made of

    def _entries(self, row: Any, source: dict[str, Any]) -> Iterator[ManifestEntry]:
        if "s3" in source:
            return self._listed(row, source)
        if "manifest" in source:
            return self._matched(source["manifest"])
        return self._packed(self._files_of(source))

    def _files_of(self, source: dict[str, Any]) -> Iterator[SourceFile]:
        if "upload" in source:
            yield from files_of(self._blob(source["upload"]))
            return
        for one in source["uploads"]:
            blob = self._blob(one["upload"])
            yield SourceFile(one["path"], blob.read(0, blob.size))

    def _blob(self, upload: str) -> ByteSource:
        size = self._hold(upload)

        def read(start: int, stop: int) -> Iterator[bytes]:
            while start < stop:
                piece = self._job._uploads.read(upload, start, min(1 << 20, stop - start))
                if not piece:
                    return
                start += len(piece)
                yield piece

        return ByteSource(size, read)

    def _hold(self, upload: str) -> int:
        return self._job._uploads.hold(upload, HELD).offset

    def _packed(self, files: Iterable[SourceFile]) -> Iterator[ManifestEntry]:
        def counted(file: SourceFile) -> SourceFile:
            return SourceFile(file.path, self._counting(file.chunks))

        def new_key() -> str:
            key = new_pack(self._id)
            self._refer(key)
            return key

        return pack(map(counted, files), self._objects.put, new_key)

    def _counting(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        self._files += 1
        for chunk in chunks:
            self._bytes += len(chunk)
            self._tell()
            yield chunk
        self._tell()

    def _listed(self, row: Any, source: dict[str, Any]) -> Iterator[ManifestEntry]:
        """List a bucket, and read what is not as it was in the version before: a merge of two sorted streams."""
        bucket, prefix = split(source["s3"])
        connection = self._job._sources.connection(source["connection"], bucket)
        reader = self._job._sources.reader(connection)
        with self._database.read() as c:
            before = store.before(c, row)
        known = manifest_object.read(self._objects, before.manifest) if before is not None else iter(())
        last = next(known, None)

        def read(path: str, key: str, size: int, etag: str | None) -> ManifestEntry:
            place = f"s3:{connection.name}/{bucket}/{key}"
            whole = _hashed(lambda: reader.read(bucket, key, etag), size, f"s3://{bucket}/{key}", etag)
            return ManifestEntry(path, size, whole, place, 0, etag)

        with ThreadPoolExecutor(READERS, "hash") as readers:
            waiting: list[ManifestEntry | Future[ManifestEntry]] = []
            for path, found in _within(reader, bucket, prefix):
                path = file_names.validated(path)
                while last is not None and last.path.encode() < path.encode():
                    last = next(known, None)
                if _unchanged(last, path, found):
                    assert last is not None
                    waiting.append(last)
                else:
                    self._located = True
                    waiting.append(readers.submit(read, path, found.key, found.size, found.etag))
                if len(waiting) >= AHEAD:
                    yield from self._seen(waiting[: AHEAD // 2])
                    del waiting[: AHEAD // 2]
            yield from self._seen(waiting)

    def _seen(self, waiting: Iterable["ManifestEntry | Future[ManifestEntry]"]) -> Iterator[ManifestEntry]:
        for one in waiting:
            entry = one if isinstance(one, ManifestEntry) else one.result()
            self._files += 1
            self._bytes += entry.size
            self._tell()
            yield entry

    def _matched(self, given: Any) -> Iterator[ManifestEntry]:
        """Find the content that a manifest names in this project's other versions, or in the bucket it names."""
        with (
            tempfile.TemporaryDirectory(dir=self._job._scratch) as folder,
            closing(ManifestIndex(Path(folder))) as wanted,
        ):
            for line in self._lines_of(given):
                path, digest, size, source = checked_line(line)
                wanted.add(path, digest, size, source, line.get("connection"))
            wanted.added()
            with self._database.read() as c:
                others = store.ready(c, PROJECT)
            for other in others:
                if not wanted.missing():
                    break
                self._borrow(other, wanted)
            if missing := wanted.missing():
                raise Invalid(f"Nothing here has the content {missing}; upload it, or name its `source`.")
            for path, digest, size, source, connection, offset, etag in wanted.found():
                self._files += 1
                self._bytes += size
                self._tell()
                if source.startswith("s3://"):
                    yield self._noted(path, digest, size, source, connection)
                else:
                    yield ManifestEntry(path, size, digest, source, offset, etag)

    def _lines_of(self, given: Any) -> Iterator[dict[str, Any]]:
        if isinstance(given, list):
            yield from given
            return
        blob = self._blob(given["upload"])
        for number, line in enumerate(lines(blob.read(0, blob.size), LINE), 1):
            if len(line) > LINE:
                raise Invalid(f"Line {number} of the manifest has more than {LINE} bytes.")
            if line.strip():
                try:
                    yield msgspec.json.decode(line, type=dict[str, Any])
                except (msgspec.MsgspecError, RecursionError) as error:
                    raise Invalid(f"Line {number} of the manifest cannot be read: {error}.") from None

    def _borrow(self, other: Any, wanted: "ManifestIndex") -> None:
        """Take over what another version has; its objects are ours too before anything is said of them."""
        found: list[ManifestEntry] = []
        for entry in chain(manifest_object.read(self._objects, other.manifest), [None]):
            if entry is not None and wanted.misses(entry.digest):
                found.append(entry)
            if found and (entry is None or len(found) >= 10_000):
                if not self._database.write(self._borrowing(other.id, found)):
                    if not self._still_ours():
                        raise ClaimLost
                    return  # it was deleted in the meantime; another may have the same
                wanted.settle(found)
                found = []

    def _borrowing(self, lender: str, found: Iterable[ManifestEntry]) -> Callable[[Connection], bool]:
        packs = sorted({one.source.removeprefix("store:") for one in found if one.source.startswith("store:")})
        return lambda c: store.borrow(c, self._id, self._who, lender, packs)

    def _still_ours(self) -> bool:
        return self._database.write(lambda c: store.holds(c, self._id, self._who), durable=False)

    def _noted(self, path: str, digest: str, size: int, source: str, connection: str | None) -> ManifestEntry:
        """Look at a file in a bucket: it must be what the manifest says it is."""
        bucket, key = split(source)
        leading = self._job._sources.connection(connection, bucket)
        reader = self._job._sources.reader(leading)
        found = next(reader.listing(bucket, key), None)  # the first of all that begin with the key is the key itself
        if found is None or (found.key, found.size) != (key, size):
            raise Invalid(f"There is no object of {size} bytes at {source[:200]}.")
        if _hashed(lambda: reader.read(bucket, key, found.etag), size, source, found.etag) != digest:
            raise Invalid(f"The object {source[:200]} does not have the digest {digest}.")
        self._located = True
        return ManifestEntry(path, size, digest, f"s3:{leading.name}/{bucket}/{key}", 0, found.etag)

    # -- what becomes of it

    @contextmanager
    def _sorted(self, entries: Iterator[ManifestEntry]) -> Iterator[Iterator[ManifestEntry]]:
        """Bring entries into order, and refuse names that cannot lie side by side."""
        scratch = self._job._scratch
        memory = self._job._sort_memory
        with Sorter(scratch, held=memory) as by_path, Sorter(scratch, held=memory) as by_folded:
            for entry in entries:
                by_path.add(entry.path.encode(), encode(entry).rstrip(b"\n"))
                by_folded.add(file_names.folded(entry.path), entry.path.encode())
            neighbours = file_names.ConflictChecker()
            for key, path in by_folded:
                neighbours.add(key, path.decode())
            yield (decode(line) for _, line in by_path)

    def _described(self, manifest: str) -> str | None:
        """Read and check what makes files a dataset to be played, where there is one."""
        entry = manifest_object.find(self._objects, manifest, scenarios.DESCRIPTION)
        if entry is None:
            return None
        if entry.size > scenarios.LONGEST:
            raise BadScenario(f"{scenarios.DESCRIPTION} has more than {scenarios.LONGEST} bytes.")
        said = scenarios.parse_description(b"".join(self._job._sources.read(entry)))
        listed = manifest_object.find(self._objects, manifest, said.scenarios)
        if listed is None:
            raise BadScenario(f"{scenarios.DESCRIPTION}: there is no file {file_names.printable(said.scenarios)}.")
        given = scenarios.non_blank(lines(self._job._sources.read(listed), scenarios.LINE))
        tasks = sum(1 for _ in scenarios.validated(given, said.extends))
        if tasks == 0:
            raise BadScenario("There is not one scenario in it.")
        return json.dumps(msgspec.to_builtins(said) | {"tasks": tasks})

    def _refer(self, object: str) -> None:
        if not self._database.write(lambda c: store.refer(c, self._id, self._who, object)):
            raise ClaimLost

    def _tell(self) -> None:
        """Say how far it has come, now and then, and keep what it is made of."""
        now = time.monotonic()
        if now - self._told < PACE:
            return
        self._told = now
        if now - self._held_at > HELD / 4:
            self._held_at = now
            self._database.write(lambda c: hold(c, self._uploads, self._database.now(c)), durable=False)
        progress = {"files": self._files, "bytes": self._bytes, "rate": self._bytes / max(0.001, now - self._began)}
        if not self._database.write(lambda c: store.tell(c, self._id, self._who, progress), durable=False):
            raise ClaimLost


def _within(reader: "BucketReader", bucket: str, prefix: str) -> Iterator[tuple[str, "ListedObject"]]:
    """Yield the objects of a folder, each with its path in there; where there are none, the one object of that name."""
    folder = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
    empty = True
    for found in reader.listing(bucket, folder):
        path = found.key.removeprefix(folder).lstrip("/")
        if path and not path.endswith("/"):  # what consoles make to show a folder
            empty = False
            yield path, found
    if empty and folder != prefix:
        alone = next(reader.listing(bucket, prefix), None)
        if alone is not None and alone.key == prefix:
            yield prefix.rpartition("/")[2], alone


def _unchanged(last: ManifestEntry | None, path: str, found: Any) -> bool:
    return (
        last is not None
        and last.path == path
        and last.etag is not None
        and (last.etag, last.size) == (found.etag, found.size)
        and last.source.endswith(f"/{found.key}")
    )


def _hashed(read: Callable[[], Iterable[bytes]], size: int, where: str, etag: str | None) -> str:
    """Return the digest of an object that must have so many bytes.

    Most ETags are the MD5 of an object's bytes. Where one looks like it and is not, it was never meant so, or a bit was
    flipped on the way: then the object is read until two readings are alike.
    """
    seen: set[str] = set()
    while True:
        sha256, md5 = hashlib.sha256(), _md5() if etag is not None and _MD5.fullmatch(etag) else None
        length = 0
        for chunk in read():
            sha256.update(chunk)
            if md5 is not None:
                md5.update(chunk)
            length += len(chunk)
        if length != size:
            raise StoreUnavailable(f"{where} has {length} bytes, not {size} as listed: it changed, or was cut off.")
        whole = "sha256:" + sha256.hexdigest()
        if md5 is None or md5.hexdigest() == etag or whole in seen:
            return whole
        seen.add(whole)
        if len(seen) == READINGS:
            raise StoreUnavailable(f"{where} was read {READINGS} times, and had other bytes each time.")


def _md5() -> "hashlib._Hash":
    return hashlib.md5(usedforsecurity=False)
