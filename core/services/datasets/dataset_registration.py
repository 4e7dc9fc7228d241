"""Dataset registration: the job that reads a source once, packs or locates its files, and writes a sorted manifest.

The job may be killed at any point: the next attempt deletes what the previous one wrote and starts again. A version is
not visible before it is complete.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from common.errors import Invalid, OriginFailed, PlatformError, StorageFull, StoreUnavailable
from common.file_reading import refuse_unreadable
from core.domain.access.scopes import PLATFORM, Scope, work_of
from core.services.claims import Action, ClaimedJob, ClaimLost, DiskFull, OnError
from core.services.datasets.datasets import Datasets
from core.services.datasets.environment_registration import EnvironmentRegistration
from core.services.datasets.file_sources import Sources
from core.services.datasets.map_conversion import MapLimits
from core.services.datasets.own_worlds import OwnWorld, OwnWorlds
from core.services.datasets.registration_progress import RegistrationProgress
from core.services.datasets.source_kinds import IN_BUCKETS, stored_source
from core.services.datasets.source_kinds.base import SourceAccess, SourceKind
from core.services.datasets.version_files import VersionFiles
from core.services.datasets.version_objects import VersionObjects
from core.services.uploads.disk_floor import DiskFloor
from core.services.uploads.uploads import Uploads
from core.store import datasets as store
from core.store.claims import HeldClaim
from core.store.database import Connection, Database
from datasets.objectstore.base import ObjectStore
from datasets.versions import external_sort, file_names
from datasets.versions.external_sort import Sorter
from datasets.versions.manifest import ManifestEntry, decode, encode
from datasets.versions.scenarios import DESCRIPTION

logger = logging.getLogger(__name__)

#: Attempts after which a registration fails.
ATTEMPTS = 5


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
            row = store.by_id(c, PLATFORM, claim.id)
        if row is None:
            raise ClaimLost
        progress = None
        try:
            source = stored_source(row.source)
            progress = RegistrationProgress(self._database, claim, Scope(row.project), source.upload_ids())
            if row.attempts > ATTEMPTS:
                raise Invalid(f"Its registration was interrupted {ATTEMPTS} times; see the log.")
            self._versions.garbage.purge(claim.id)  # objects of an earlier attempt
            self._read(row, source, claim, progress)
        except Exception as error:
            # A source that never answered is probably a wrong address.
            begun = progress is not None and progress.begun
            failure = JOB.failure_of(error, exhausted=not begun or row.attempts >= ATTEMPTS)
            if failure.action is Action.FAIL:
                self._fail(claim, failure.reason)
                return
            if failure.action is Action.WAIT:  # not an attempt
                self._database.write(lambda c: store.CLAIMS.change(c, claim, attempts=row.attempts - 1))
            logger.warning("registration of version %s is retried: %s", claim.id, failure.reason)

    def _read(
        self, row: store.DatasetVersionRow, source: SourceKind, claim: HeldClaim, progress: RegistrationProgress
    ) -> None:
        """Write the manifest, check the description, and make the version ready."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        version = VersionObjects(
            database=self._database,
            objects=self._objects,
            claim=claim,
            progress=progress,
            largest=self._limits.largest,
            floor=self._limits.floor,
        )
        access = SourceAccess(
            row=row, uploads=self._uploads, sources=self._sources, scratch=self._scratch, version=version
        )
        with self._sorted(_read_entries(source, access), enters=source.has_archive) as entries:
            manifest, written = version.write_manifest(entries)
        if written.files == 0:
            raise Invalid("The source contains no files.")
        files = VersionFiles(self._objects, self._sources, manifest)
        with refuse_unreadable(DESCRIPTION):
            description = files.description()
        world = OwnWorld()
        if description is not None:
            world = self._worlds.of(claim.id, description, files, progress.report)
        if world.files:
            manifest, written = version.add_derived(manifest, world.files)
            files = VersionFiles(self._objects, self._sources, manifest)
        described = None
        if description is not None:
            with refuse_unreadable(f"The file {file_names.printable(description.scenarios)} of the scenarios"):
                described = world.described(description, files.read(description.scenarios))
        values = {"manifest": manifest, "digest": written.digest, "files": written.files, "bytes": written.bytes}
        values |= {"described": described, "stored_bytes": 0 if progress.located else written.bytes}
        located = IN_BUCKETS if progress.located else ()

        def finish(c: Connection) -> store.DatasetVersionRow | None:
            return store.finish(c, claim, values, self._database.now(c), located=located)

        finished = self._database.write(finish)
        if finished is None:
            raise ClaimLost
        for upload in source.upload_ids():
            self._uploads.let_go(work_of(row.project), upload)
        if finished.manifest != manifest:  # an existing version has the same content
            self._versions.garbage.purge(claim.id)

    def _fail(self, claim: HeldClaim, reason: str) -> None:
        def fail(c: Connection) -> bool:
            ended_at = self._database.now(c)
            return store.CLAIMS.release(c, claim, state="failed", reason=reason[:2000], ended_at=ended_at)

        if self._database.write(fail):
            logger.warning("registration of version %s failed: %s", claim.id, reason)
            self._versions.garbage.purge(claim.id)
            with self._database.read() as c:
                row = store.by_id(c, PLATFORM, claim.id)
            if row is not None:
                self._versions.release_uploads(row)

    @contextmanager
    def _sorted(self, entries: Iterator[ManifestEntry], *, enters: bool) -> Iterator[Iterator[ManifestEntry]]:
        """Sort entries by path. Raise BadName for names that conflict on a file system.

        ``enters``: if all are in one folder that has a dataset.json, their paths begin there.
        """
        folder, described = None, False
        scratch, memory = self._scratch, self._limits.sort_memory
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


def _read_entries(source: SourceKind, access: SourceAccess) -> Iterator[ManifestEntry]:
    """Yield the entries of a source's files. Raise Invalid with the place of what cannot be read."""
    entries, place = source.entries(access), "The source"
    while True:
        with refuse_unreadable(place):
            entry = next(entries, None)
        if entry is None:
            return
        place = f"The source, after its file {file_names.printable(entry.path)},"
        yield entry
