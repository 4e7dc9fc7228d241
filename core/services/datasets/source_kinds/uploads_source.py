"""Uploads source: one upload for each file, with its path."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import msgspec

from core.domain.access.scopes import Caller
from core.services.datasets.dataset_sources import check_finished
from core.services.datasets.file_sources import Sources
from core.services.datasets.source_kinds.base import SourceAccess, SourceKind
from core.services.uploads.uploads import Uploads
from datasets.versions import file_names
from datasets.versions.manifest import ManifestEntry
from datasets.versions.packs import SourceFile


class PlacedUpload(msgspec.Struct, frozen=True):
    """A file: its path in the dataset, and the upload with its content."""

    path: str
    upload: str


class UploadsSource(SourceKind, frozen=True):
    """Uploaded files."""

    uploads: list[PlacedUpload]

    @classmethod
    def of_request(cls, caller: Caller, request: Mapping[str, object], uploads: Uploads, sources: Sources) -> Self:
        """Check that the uploads are finished, and the paths."""
        source = msgspec.convert(request, cls)
        for file in source.uploads:
            check_finished(caller, uploads, file.upload)
        return cls([PlacedUpload(file_names.validated(file.path), file.upload) for file in source.uploads])

    def upload_ids(self) -> Sequence[str]:
        """Return those of the files, each once."""
        return list(dict.fromkeys(file.upload for file in self.uploads))

    def entries(self, access: SourceAccess) -> Iterator[ManifestEntry]:
        """Pack the files."""
        return access.version.packed(self._files(access))

    def _files(self, access: SourceAccess) -> Iterator[SourceFile]:
        for file in self.uploads:
            content = access.content(file.upload)
            yield SourceFile(file.path, content.read(0, content.size))
