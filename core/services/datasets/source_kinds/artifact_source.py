"""Artifact source: an archive that a simulation's program left and that becomes a dataset at the simulation's end.

No request names it. The simulation, and with it the archive, cannot be deleted before the registration has ended.
"""

from collections.abc import Iterator
from functools import partial

from core.services.datasets.source_kinds.base import SourceAccess, SourceKind
from datasets.versions.archives import ByteSource, files_of
from datasets.versions.manifest import ManifestEntry
from datasets.versions.packs import SourceFile


class ArtifactSource(SourceKind, frozen=True):
    """An artifact of a simulation, by its ``bytes`` at an ``offset`` of an ``object``, with where it comes from."""

    artifact: str
    digest: str
    simulation: str
    task: int
    object: str
    offset: int
    bytes: int

    @property
    def has_archive(self) -> bool:
        return True

    def entries(self, access: SourceAccess) -> Iterator[ManifestEntry]:
        """Pack the archive's files."""
        return access.version.packed(self._files(access))

    def _files(self, access: SourceAccess) -> Iterator[SourceFile]:
        entry = ManifestEntry(
            path=self.artifact,
            size=self.bytes,
            digest=self.digest,
            source=f"store:{self.object}",
            offset=self.offset,
        )
        yield from files_of(ByteSource(self.bytes, partial(access.sources.read, entry)))
