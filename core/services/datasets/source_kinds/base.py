"""Source kind: the port of what a request may name as the source of a version's files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import msgspec

from core.domain.access.scopes import Caller, work_of
from core.services.datasets.dataset_sources import HELD
from core.services.datasets.file_sources import Sources
from core.services.datasets.version_objects import VersionObjects
from core.services.uploads.uploads import Uploads
from core.store.datasets import DatasetVersionRow
from datasets.versions.archives import ByteSource
from datasets.versions.manifest import ManifestEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceAccess:
    """Services that a source is read through while its version, a ``row``, is registered, and a scratch folder."""

    row: DatasetVersionRow
    uploads: Uploads
    sources: Sources
    scratch: Path
    version: VersionObjects

    def content(self, upload: str) -> ByteSource:
        """Protect an upload, and return its content."""
        work = work_of(self.row.project)
        size = self.uploads.hold(work, upload, HELD).offset

        def read(start: int, stop: int) -> Iterator[bytes]:
            while start < stop:
                piece = self.uploads.read(work, upload, start, min(1 << 20, stop - start))
                if not piece:
                    return
                start += len(piece)
                yield piece

        return ByteSource(size, read)


class SourceKind(msgspec.Struct, frozen=True):
    """A source of a version's files; its fields are its stored form."""

    #: Members that a request may have beside the one that names the kind.
    beside: ClassVar[frozenset[str]] = frozenset()
    #: Whether its files may stay in a bucket.
    in_bucket: ClassVar[bool] = False

    @classmethod
    def of_request(cls, caller: Caller, request: Mapping[str, object], uploads: Uploads, sources: Sources) -> Self:
        """Return the source of a request. Raise Invalid if it cannot be registered."""
        raise NotImplementedError

    @property
    def has_archive(self) -> bool:
        """Whether paths begin within the folder that has all of its files, if dataset.json is there."""
        return False

    def upload_ids(self) -> Sequence[str]:
        """Return the uploads that it is read from, each once; they are protected until then."""
        return ()

    def entries(self, access: SourceAccess) -> Iterator[ManifestEntry]:
        """Yield the entries of its files in any order, each when it is packed or located."""
        raise NotImplementedError
