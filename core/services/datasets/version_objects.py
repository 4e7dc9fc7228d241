"""Version objects: the packs and manifests of a version that is registered, each referenced before it is written."""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from common.errors import TooLarge
from core.services.claims import ClaimLost
from core.services.datasets.dataset_maps import with_derived
from core.services.datasets.registration_progress import RegistrationProgress
from core.services.uploads.disk_floor import INTERVAL, DiskFloor
from core.store import datasets as store
from core.store.claims import HeldClaim
from core.store.database import Database
from datasets.objectstore.base import ObjectStore
from datasets.versions import manifest_object
from datasets.versions.manifest import ManifestEntry
from datasets.versions.manifest_object import ManifestSummary
from datasets.versions.packs import SourceFile, pack


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionObjects:
    """Writes the objects of a version while its job has the claim; raises ClaimLost when it has it no longer.

    ``largest``: the maximum of bytes of its files, if any of them is copied.
    """

    database: Database
    objects: ObjectStore
    claim: HeldClaim
    progress: RegistrationProgress
    largest: int
    floor: DiskFloor

    def packed(self, files: Iterable[SourceFile]) -> Iterator[ManifestEntry]:
        """Copy files into packs; return their entries. Raises TooLarge, and StorageFull at the disk's floor."""
        self.floor.check()

        def new_key() -> str:
            key = f"packs/{self.claim.id}/{secrets.token_hex(8)}"
            self._add_reference(key)
            return key

        counted = (SourceFile(file.path, self._counted(file.chunks)) for file in files)
        return pack(counted, self.objects.put, new_key)

    def _counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        progress = self.progress
        progress.files += 1
        for chunk in chunks:
            progress.bytes += len(chunk)
            if progress.bytes % INTERVAL < len(chunk):  # of all files: a check for each would cost more than it
                self.floor.check()
            if progress.bytes > self.largest:
                raise TooLarge(
                    f"Its files have more than {self.largest:,} bytes, as many as are copied into the object store"
                    " (WINDTUNNEL_MAX_DATASET). Register several datasets, or a bucket, whose objects are not copied."
                )
            progress.report()
            yield chunk
        progress.report()

    def borrowed(self, lender: str, entries: Iterable[ManifestEntry]) -> bool:
        """Insert references to objects of another version; return False if it was deleted meanwhile."""
        packs = sorted({entry.source.removeprefix("store:") for entry in entries if entry.source.startswith("store:")})
        if self.database.write(lambda c: store.borrow(c, self.claim, lender, packs)):
            return True
        if not self.database.write(lambda c: store.CLAIMS.lock(c, self.claim), durable=False):
            raise ClaimLost
        return False

    def write_manifest(self, entries: Iterable[ManifestEntry]) -> tuple[str, ManifestSummary]:
        """Write a manifest; return its key and summary."""
        manifest = f"manifests/{self.claim.id}/{secrets.token_hex(8)}"
        self._add_reference(manifest)
        self._add_reference(manifest_object.index_of(manifest))
        return manifest, manifest_object.write(self.objects, manifest, entries)

    def add_derived(self, manifest: str, files: Iterable[SourceFile]) -> tuple[str, ManifestSummary]:
        """Add files that the platform made to a version; return the manifest that replaces the given one."""
        derived = sorted(self.packed(files), key=lambda entry: entry.path.encode())
        written = self.write_manifest(with_derived(manifest_object.read(self.objects, manifest), derived))
        for object in (manifest, manifest_object.index_of(manifest)):
            self.objects.delete(object)
            self.database.write(lambda c, object=object: store.forget(c, self.claim.id, object))  # type: ignore[misc]
        return written

    def _add_reference(self, object: str) -> None:
        if not self.database.write(lambda c: store.refer(c, self.claim, object)):
            raise ClaimLost
