"""Archive source: one upload with all files, a tar or a zip."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import msgspec

from common.top_folder import is_clutter
from core.domain.access.scopes import Caller
from core.services.datasets.dataset_sources import check_finished
from core.services.datasets.file_sources import Sources
from core.services.datasets.source_kinds.base import SourceAccess, SourceKind
from core.services.uploads.uploads import Uploads
from datasets.versions.archives import files_of
from datasets.versions.manifest import ManifestEntry
from datasets.versions.packs import SourceFile


class ArchiveSource(SourceKind, frozen=True):
    """An uploaded archive."""

    upload: str

    @classmethod
    def of_request(cls, caller: Caller, request: Mapping[str, object], uploads: Uploads, sources: Sources) -> Self:
        """Check that the upload is finished."""
        source = msgspec.convert(request, cls)
        check_finished(caller, uploads, source.upload)
        return source

    @property
    def has_archive(self) -> bool:
        return True

    def upload_ids(self) -> Sequence[str]:
        return [self.upload]

    def entries(self, access: SourceAccess) -> Iterator[ManifestEntry]:
        """Pack the files, without those that only the archiving machine needed."""
        return access.version.packed(self._files(access))

    def _files(self, access: SourceAccess) -> Iterator[SourceFile]:
        yield from (file for file in files_of(access.content(self.upload)) if not is_clutter(file.path))
