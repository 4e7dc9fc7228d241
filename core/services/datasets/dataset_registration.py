"""Dataset registration: the job that reads a source once, packs or locates its files, and writes a sorted manifest.

The job may be killed at any point: the next attempt deletes what the previous one wrote and starts again. A version is
not visible before it is complete.
"""

import json
import logging
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from common.errors import Invalid, OriginFailed, PlatformError, StorageFull, StoreUnavailable, TooLarge
from common.top_folder import is_clutter
from core.services.claims import Action, ClaimedJob, ClaimLost, DiskFull, OnError
from core.services.datasets.bucket_objects import digest_of, is_unchanged, objects_within
from core.services.datasets.dataset_maps import with_derived
from core.services.datasets.dataset_sources import HELD, checked_line, hold, split, uploads_of
from core.services.datasets.datasets import PROJECT, Datasets, new_pack
from core.services.datasets.environment_registration import EnvironmentRegistration
from core.services.datasets.file_sources import Sources
from core.services.datasets.manifest_index import ManifestIndex
from core.services.datasets.map_conversion import MapLimits
from core.services.datasets.own_worlds import OwnWorld, OwnWorlds
from core.services.datasets.version_files import VersionFiles
from core.services.uploads.disk_floor import INTERVAL, DiskFloor
from core.services.uploads.uploads import Uploads
from core.store import datasets as store
from core.store.claims import HeldClaim
from core.store.database import Connection, Database
from datasets.objectstore.base import ObjectStore
from datasets.versions import external_sort, file_names, manifest_object
from datasets.versions.archives import ByteSource, files_of
from datasets.versions.external_sort import Sorter
from datasets.versions.manifest import ManifestEntry, decode, encode, lines
from datasets.versions.manifest_object import ManifestSummary
from datasets.versions.packs import SourceFile, pack
from datasets.versions.scenarios import DESCRIPTION

logger = logging.getLogger(__name__)

#: Attempts after which a registration fails.
ATTEMPTS = 5
#: Objects of a bucket that are read concurrently, and that are listed ahead of them.
READERS, AHEAD = 8, 256
#: Seconds between two updates of the progress.
PROGRESS_INTERVAL = 0.5
#: Maximum bytes of a line of an uploaded manifest.
LINE = 8 << 10


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistrationLimits:
    """Limits of a registration, in bytes."""

    #: Maximum of the files that are copied into the object store: unpacked from an archive, or from uploads.
    largest: int = 1 << 40
    #: Memory of the sort by path.
    sort_memory: int = external_sort.HELD
    floor: DiskFloor = field(default_factory=DiskFloor)
    maps: MapLimits = field(default_factory=MapLimits)


JOB = ClaimedJob(
    take=store.CLAIMS.take,
    what="version {id}",
    outcomes=(
        OnError((StorageFull,), Action.FAIL),
        OnError((StoreUnavailable,), Action.WAIT),  # until the claim expires
        OnError((OriginFailed,), Action.RETRY),  # when the claim has expired
        OnError((PlatformError,), Action.FAIL),
        OnError((DiskFull,), Action.FAIL, "The disk is full. Free some space and register it again."),
        OnError((MemoryError,), Action.FAIL, "Its files need more memory to be read than a registration may have."),
    ),
)


class DatasetRegistration:
    """Registers dataset versions. Idempotent, also after a crash at any point."""

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        uploads: Uploads,
        sources: Sources,
        versions: Datasets,
        environments: EnvironmentRegistration,
        limits: RegistrationLimits | None = None,
    ) -> None:
        """``environments``: registers environments of datasets, and names the folder with this machine's files."""
        self._database = database
        self._objects = objects
        self._uploads = uploads
        self._sources = sources
        self._versions = versions
        self._limits = limits or RegistrationLimits()
        self._worlds = OwnWorlds(environments, self._limits.maps)
        self._scratch = self._worlds.scratch

    def register(self, id: str) -> None:
        """Register a version, unless another job has claimed it or it has ended."""
        JOB.run(self._database, id, self._register)

    def _register(self, claim: HeldClaim) -> None:
        with self._database.read() as c:
            row = store.by_id(c, claim.id)
        if row is None:
            raise ClaimLost
        current = _Attempt(self, claim)
        try:
            if row.attempts > ATTEMPTS:
                raise Invalid(f"Its registration was interrupted {ATTEMPTS} times; see the log.")
            self._versions.purge(claim.id)  # objects of an earlier attempt
            current.run(row)
        except Exception as error:
            # A source that never answered is probably a wrong address.
            failure = JOB.failure_of(error, exhausted=not current.begun or row.attempts >= ATTEMPTS)
            if failure.action is Action.FAIL:
                self._fail(claim, failure.reason)
                return
            if failure.action is Action.WAIT:  # not an attempt
                self._database.write(lambda c: store.CLAIMS.change(c, claim, attempts=row.attempts - 1))
            logger.warning("registration of version %s is retried: %s", claim.id, failure.reason)

    def _fail(self, claim: HeldClaim, reason: str) -> None:
        def fail(c: Connection) -> bool:
            ended_at = self._database.now(c)
            return store.CLAIMS.release(c, claim, state="failed", reason=reason[:2000], ended_at=ended_at)

        if self._database.write(fail):
            logger.warning("registration of version %s failed: %s", claim.id, reason)
            self._versions.purge(claim.id)
            with self._database.read() as c:
                row = store.by_id(c, claim.id)
            if row is not None:
                self._versions.release_uploads(row)


class _Attempt:
    """An attempt to register a version."""

    def __init__(self, job: DatasetRegistration, claim: HeldClaim) -> None:
        self._job = job
        self._id = claim.id
        self._claim = claim
        self._database = job._database
        self._objects = job._objects
        self._began = self._reported_at = time.monotonic()
        self._held_at = 0.0
        self._files = self._bytes = self._checked_at = 0
        self._uploads: list[str] = []
        self._message = ""
        self._located = False  # whether a file was read and located in a bucket

    @property
    def begun(self) -> bool:
        """Whether any file was read."""
        return self._files > 0

    def run(self, row: Any) -> None:
        """Write the manifest, check the description, and make the version ready."""
        source = json.loads(row.source)
        self._uploads = uploads_of(source)
        self._job._scratch.mkdir(parents=True, exist_ok=True)
        with self._sorted(self._entries(row, source), enters="upload" in source) as entries:
            manifest, written = self._written(entries)
        if written.files == 0:
            raise Invalid("The source contains no files.")
        files = VersionFiles(self._objects, self._job._sources, manifest)
        description = files.description()
        world = OwnWorld()
        if description is not None:
            world = self._job._worlds.of(self._id, description, files, self._report_progress)
        if world.files:
            manifest, written = self._with_derived(manifest, world.files)
            files = VersionFiles(self._objects, self._job._sources, manifest)
        described = world.described(description, files.read(description.scenarios)) if description is not None else None
        values = {"manifest": manifest, "digest": written.digest, "files": written.files, "bytes": written.bytes}
        values["described"] = described

        def finish(c: Connection) -> Any:
            return store.finish(c, self._claim, values, self._database.now(c), located=self._located)

        finished = self._database.write(finish)
        if finished is None:
            raise ClaimLost
        for upload in self._uploads:
            self._job._uploads.let_go(upload)
        if finished.manifest != manifest:  # an existing version has the same content
            self._job._versions.purge(self._id)

    # -- files of the source

    def _entries(self, row: Any, source: dict[str, Any]) -> Iterator[ManifestEntry]:
        if "s3" in source:
            return self._listed(row, source)
        if "manifest" in source:
            return self._matched(source["manifest"], source.get("upload"))
        return self._packed(self._files_of(source))

    def _files_of(self, source: dict[str, Any]) -> Iterator[SourceFile]:
        if "upload" in source:
            yield from (file for file in files_of(self._content(source["upload"])) if not is_clutter(file.path))
            return
        for file in source["uploads"]:
            content = self._content(file["upload"])
            yield SourceFile(file["path"], content.read(0, content.size))

    def _content(self, upload: str) -> ByteSource:
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
        self._job._limits.floor.check()

        def counted(file: SourceFile) -> SourceFile:
            return SourceFile(file.path, self._counting(file.chunks))

        def new_key() -> str:
            key = new_pack(self._id)
            self._add_reference(key)
            return key

        return pack(map(counted, files), self._objects.put, new_key)

    def _counting(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        limits = self._job._limits
        self._files += 1
        for chunk in chunks:
            self._bytes += len(chunk)
            if self._bytes - self._checked_at >= INTERVAL:  # of all files: a check for each would cost more than it
                limits.floor.check()
                self._checked_at = self._bytes
            if self._bytes > limits.largest:
                raise TooLarge(
                    f"Its files have more than {limits.largest:,} bytes, as many as are copied into the object store"
                    " (WINDTUNNEL_MAX_DATASET). Register several datasets, or a bucket, whose objects are not copied."
                )
            self._report_progress()
            yield chunk
        self._report_progress()

    def _listed(self, row: Any, source: dict[str, Any]) -> Iterator[ManifestEntry]:
        """List a bucket and read the objects that changed since the previous version: a merge of two sorted streams."""
        bucket, prefix = split(source["s3"])
        connection = self._job._sources.connection(source["connection"], bucket)
        reader = self._job._sources.reader(connection)
        with self._database.read() as c:
            previous = store.before(c, row)
        known = manifest_object.read(self._objects, previous.manifest) if previous is not None else iter(())
        last = next(known, None)

        def read(path: str, key: str, size: int, etag: str | None) -> ManifestEntry:
            location = f"s3:{connection.name}/{bucket}/{key}"
            digest = digest_of(lambda: reader.read(bucket, key, etag), size, f"s3://{bucket}/{key}", etag)
            return ManifestEntry(path=path, size=size, digest=digest, source=location, offset=0, etag=etag)

        with ThreadPoolExecutor(READERS, "hash") as readers:
            pending: list[ManifestEntry | Future[ManifestEntry]] = []
            for path, listed in objects_within(reader, bucket, prefix):
                path = file_names.validated(path)
                while last is not None and last.path.encode() < path.encode():
                    last = next(known, None)
                if is_unchanged(last, path, listed):
                    assert last is not None
                    pending.append(last)
                else:
                    self._located = True
                    pending.append(readers.submit(read, path, listed.key, listed.size, listed.etag))
                if len(pending) >= AHEAD:
                    yield from self._completed(pending[: AHEAD // 2])
                    del pending[: AHEAD // 2]
            yield from self._completed(pending)

    def _completed(self, pending: Iterable["ManifestEntry | Future[ManifestEntry]"]) -> Iterator[ManifestEntry]:
        for item in pending:
            entry = item if isinstance(item, ManifestEntry) else item.result()
            self._files += 1
            self._bytes += entry.size
            self._report_progress()
            yield entry

    def _matched(self, manifest: Any, contents: str | None) -> Iterator[ManifestEntry]:
        """Locate the content of each manifest line in an archive, in other versions, or in the bucket that it names.

        ``contents``: an upload of an archive with contents that no version has; its paths do not matter.
        """
        with (
            tempfile.TemporaryDirectory(dir=self._job._scratch) as folder,
            closing(ManifestIndex(Path(folder))) as index,
        ):
            for line in self._lines_of(manifest):
                path, digest, size, source = checked_line(line)
                index.add(path, digest, size, source, line.get("connection"))
            index.added()
            if contents is not None:
                for packed in self._packed(files_of(self._content(contents))):
                    index.settle([packed])
                self._files = self._bytes = self._checked_at = 0  # counted again as files of the version, below
            with self._database.read() as c:
                others = store.ready(c, PROJECT)
            for other in others:
                if not index.missing():
                    break
                self._inherit(other, index)
            if missing := index.missing():
                raise Invalid(f"No dataset has the content {missing}; upload it, or name its `source`.")
            for path, digest, size, source, connection, offset, etag in index.located():
                self._files += 1
                self._bytes += size
                self._report_progress()
                if source.startswith("s3://"):
                    yield self._located_entry(path, digest, size, source, connection)
                else:
                    yield ManifestEntry(path=path, size=size, digest=digest, source=source, offset=offset, etag=etag)

    def _lines_of(self, manifest: Any) -> Iterator[dict[str, Any]]:
        if isinstance(manifest, list):
            yield from manifest
            return
        content = self._content(manifest["upload"])
        for number, line in enumerate(lines(content.read(0, content.size), LINE), 1):
            if len(line) > LINE:
                raise Invalid(f"Line {number} of the manifest has more than {LINE} bytes.")
            if line.strip():
                try:
                    yield msgspec.json.decode(line, type=dict[str, Any])
                except (msgspec.MsgspecError, RecursionError) as error:
                    raise Invalid(f"Line {number} of the manifest cannot be read: {error}.") from None

    def _inherit(self, other: Any, index: "ManifestIndex") -> None:
        """Locate contents in another version; references to its objects are inserted before they are used."""
        entries: list[ManifestEntry] = []
        for entry in chain(manifest_object.read(self._objects, other.manifest), [None]):
            if entry is not None and index.misses(entry.digest):
                entries.append(entry)
            if entries and (entry is None or len(entries) >= 10_000):
                if not self._database.write(self._adding_references(other.id, entries)):
                    if not self._holds_claim():
                        raise ClaimLost
                    return  # the other version was deleted meanwhile; another may have the same content
                index.settle(entries)
                entries = []

    def _adding_references(self, lender: str, entries: Iterable[ManifestEntry]) -> Callable[[Connection], bool]:
        packs = sorted({entry.source.removeprefix("store:") for entry in entries if entry.source.startswith("store:")})
        return lambda c: store.borrow(c, self._claim, lender, packs)

    def _holds_claim(self) -> bool:
        return self._database.write(lambda c: store.CLAIMS.lock(c, self._claim), durable=False)

    def _located_entry(self, path: str, digest: str, size: int, source: str, connection: str | None) -> ManifestEntry:
        """Return the entry of a file in a bucket. Raise Invalid unless size and digest are as in the manifest."""
        bucket, key = split(source)
        source_connection = self._job._sources.connection(connection, bucket)
        reader = self._job._sources.reader(source_connection)
        listed = next(reader.listing(bucket, key), None)  # the first key with this prefix is the key itself
        if listed is None or (listed.key, listed.size) != (key, size):
            raise Invalid(f"There is no object of {size} bytes at {source[:200]}.")
        if digest_of(lambda: reader.read(bucket, key, listed.etag), size, source, listed.etag) != digest:
            raise Invalid(f"The object {source[:200]} does not have the digest {digest}.")
        self._located = True
        return ManifestEntry(
            path=path,
            size=size,
            digest=digest,
            source=f"s3:{source_connection.name}/{bucket}/{key}",
            offset=0,
            etag=listed.etag,
        )

    # -- files that the platform made of those that were sent

    def _with_derived(self, manifest: str, files: Iterable[SourceFile]) -> tuple[str, ManifestSummary]:
        """Add files that the platform made to a version; return the manifest that replaces the given one."""
        derived = sorted(self._packed(files), key=lambda entry: entry.path.encode())
        written = self._written(with_derived(manifest_object.read(self._objects, manifest), derived))
        for object in (manifest, manifest_object.index_of(manifest)):
            self._objects.delete(object)
            self._database.write(lambda c, object=object: store.forget(c, self._id, object))  # type: ignore[misc]
        return written

    # -- manifest

    def _written(self, entries: Iterable[ManifestEntry]) -> tuple[str, ManifestSummary]:
        """Write a manifest; return its key and summary."""
        manifest = f"manifests/{self._id}/{secrets.token_hex(8)}"
        self._add_reference(manifest)
        self._add_reference(manifest_object.index_of(manifest))
        return manifest, manifest_object.write(self._objects, manifest, entries)

    @contextmanager
    def _sorted(self, entries: Iterator[ManifestEntry], *, enters: bool = False) -> Iterator[Iterator[ManifestEntry]]:
        """Sort entries by path. Raise BadName for names that conflict on a file system.

        ``enters``: if all are in one folder that has a dataset.json, their paths begin there.
        """
        folder, described = None, False
        scratch = self._job._scratch
        memory = self._job._limits.sort_memory
        with Sorter(scratch, held=memory) as by_path, Sorter(scratch, held=memory) as by_folded:
            for entry in entries:
                top = "".join(entry.path.partition("/")[:2]) if "/" in entry.path else ""
                folder = top if folder in {None, top} else ""
                described = described or entry.path == top + DESCRIPTION
                by_path.add(entry.path.encode(), encode(entry).rstrip(b"\n"))
                by_folded.add(file_names.folded(entry.path), entry.path.encode())
            neighbours = file_names.ConflictChecker()
            for key, path in by_folded:
                neighbours.add(key, path.decode())
            left_out = folder if folder and enters and described else ""
            sorted_entries = (decode(line) for _, line in by_path)
            yield (replace(entry, path=entry.path.removeprefix(left_out)) for entry in sorted_entries)

    def _add_reference(self, object: str) -> None:
        if not self._database.write(lambda c: store.refer(c, self._claim, object)):
            raise ClaimLost

    def _report_progress(self, message: str = "") -> None:
        """Store the progress at most every PROGRESS_INTERVAL, and renew the protection of the uploads."""
        now = time.monotonic()
        if now - self._reported_at < PROGRESS_INTERVAL and message == self._message:
            return
        self._message = message
        self._reported_at = now
        if now - self._held_at > HELD / 4:
            self._held_at = now
            self._database.write(lambda c: hold(c, self._uploads, self._database.now(c)), durable=False)
        progress: dict[str, Any] = {
            "files": self._files,
            "bytes": self._bytes,
            "rate": self._bytes / max(0.001, now - self._began),
        }
        if message:
            progress["message"] = message
        changes = {"progress": json.dumps(progress)}
        if not self._database.write(lambda c: store.CLAIMS.change(c, self._claim, **changes), durable=False):
            raise ClaimLost
