"""Model files: a model on this node as its loader gets it, a file or the folder of an archive's files."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from datasets.download.downloader import DownloadProgress
from datasets.nodecache.node_cache import NodeCache, ignore_progress
from datasets.versions.archives import zip
from datasets.versions.archives.decompression import detect_format
from datasets.versions.archives.extraction import extract, source_of

#: Names what makes the files of an archive's folder; to be changed with it.
_EXTRACTION = "windtunnel model files 1"
#: Bytes reserved for a compressed tar's files, as a multiple of its own: a tar does not tell.
_EXPANSION = 4


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model in the object store. ``archive``: its format takes archives, so that one is unpacked."""

    key: str
    digest: str
    archive: bool


class ModelFiles:
    """The models of a node cache. ``largest``: most bytes of the files of an archive."""

    def __init__(self, cache: NodeCache, *, largest: int = 4 << 30) -> None:
        self.cache = cache
        self._largest = largest

    def ready(self, model: StoredModel) -> bool | None:
        """Return whether the model can be used at once; None if it has not been downloaded yet."""
        path = self.cache.object_path(model.digest)
        if not path.exists():
            return None
        return not (model.archive and is_archive(path)) or self.cache.ready(files_digest(model.digest)) is not None

    def path(
        self, model: StoredModel, *, holder: str, on_progress: Callable[[DownloadProgress], None] = ignore_progress
    ) -> Path:
        """Return the model's file or folder, pinned for ``holder``; both are read-only.

        Raises BadArchive or TooLarge for an archive that cannot be unpacked.
        """
        file = self.cache.object(model.key, model.digest, holder=holder)
        if not (model.archive and is_archive(file)):
            return file

        def make(folder: Path, _: Callable[[DownloadProgress], None]) -> None:
            extract(file, folder, largest=self._largest)

        size = min(self._largest, _size_of_files(file))
        return self.cache.derived(files_digest(model.digest), make, size=size, holder=holder, on_progress=on_progress)


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip or a tar, compressed or not."""
    return detect_format(source_of(path)) is not None


def files_digest(digest: str) -> str:
    """Return the name of the files of the archive with this digest, in a node cache."""
    return "sha256:" + hashlib.sha256(f"{_EXTRACTION} {digest}".encode()).hexdigest()


def _size_of_files(archive: Path) -> int:
    source = source_of(archive)
    match detect_format(source):
        case "zip":
            return sum(entry.size for _, entry in zip.members(source))
        case "plain":
            return source.size
        case _:
            return _EXPANSION * source.size
