"""Model files: a model on this node as its loader gets it, a file, the folder of an archive's files, or of one file."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from datasets.download.downloader import DownloadProgress
from datasets.nodecache.node_cache import NodeCache, ignore_progress
from datasets.versions.archives import zip
from datasets.versions.archives.decompression import detect_format
from datasets.versions.archives.extraction import extract, source_of

#: Names what makes the files of an archive's folder, of a placed file's, and of one with its code; changed with it.
_EXTRACTION, _PLACING, _COMPILING = "windtunnel model files 2", "windtunnel placed file 1", "windtunnel compiled file 1"
#: Bytes reserved for a compressed tar's files, as a multiple of its own: a tar does not tell.
_EXPANSION = 4


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model in the object store. ``archive``: its format takes archives, so that one is unpacked.

    ``placed``: the name that a model of one file has in a folder; empty: it stays a file. ``toolchain``: names what
    compiles the placed file, empty: nothing.
    """

    key: str
    digest: str
    archive: bool
    placed: str = ""
    toolchain: str = ""


class ModelFiles:
    """The models of a node cache. ``largest``: most bytes of the files of an archive."""

    def __init__(self, cache: NodeCache, *, largest: int = 4 << 30) -> None:
        self.cache = cache
        self.largest = largest

    def ready(self, model: StoredModel) -> bool | None:
        """Return whether the model can be used at once; None if it has not been downloaded yet."""
        if self.compiled(model) is not None:
            return True
        path = self.cache.object_path(model.digest)
        if not path.exists():
            return None
        folder = _folder_digest(model, path)
        return folder is None or self.cache.ready(folder) is not None

    def compiled(self, model: StoredModel) -> Path | None:
        """Return the folder of a model with its code, if it is on this node."""
        return self.cache.ready(_code_digest(model)) if model.toolchain else None

    def compile(
        self,
        model: StoredModel,
        compile: Callable[[Path, Path, Callable[[DownloadProgress], None]], None],
        *,
        holder: str,
        on_progress: Callable[[DownloadProgress], None] = ignore_progress,
    ) -> Path:
        """Return the folder of a placed model with its code, which ``compile`` makes from the file; pinned."""
        file = self.cache.object(model.key, model.digest, holder=holder)

        def make(folder: Path, report: Callable[[DownloadProgress], None]) -> None:
            place(file, folder, model.placed)
            compile(file, folder, report)

        size = _EXPANSION * file.stat().st_size
        return self.cache.derived(_code_digest(model), make, size=size, holder=holder, on_progress=on_progress)

    def path(
        self, model: StoredModel, *, holder: str, on_progress: Callable[[DownloadProgress], None] = ignore_progress
    ) -> Path:
        """Return the model's file or folder, pinned for ``holder``; both are read-only.

        Raises BadArchive or TooLarge for an archive that cannot be unpacked.
        """
        if self.compiled(model) is not None:
            self.cache.hold(_code_digest(model), holder)
            if (folder := self.compiled(model)) is not None:  # it may have been evicted before it was pinned
                return folder
        file = self.cache.object(model.key, model.digest, holder=holder)
        if (digest := _folder_digest(model, file)) is None:
            return file
        archive = digest == files_digest(model.digest)

        def make(folder: Path, _: Callable[[DownloadProgress], None]) -> None:
            if archive:
                extract(file, folder, largest=self.largest)
            else:
                place(file, folder, model.placed)

        size = min(self.largest, _size_of_files(file)) if archive else file.stat().st_size
        return self.cache.derived(digest, make, size=size, holder=holder, on_progress=on_progress)


def place(file: Path, folder: Path, name: str) -> None:
    """Copy a file into a folder, readable and executable by all."""
    shutil.copyfile(file, folder / name)
    (folder / name).chmod(0o555)


def _folder_digest(model: StoredModel, file: Path) -> str | None:
    """Return the name of the folder that a model is used from; None if it is used as the file that it is."""
    if model.archive and is_archive(file):
        return files_digest(model.digest)
    if model.placed:
        return "sha256:" + hashlib.sha256(f"{_PLACING} {model.placed} {model.digest}".encode()).hexdigest()
    return None


def _code_digest(model: StoredModel) -> str:
    """Return the name of the folder of a model with its code."""
    text = f"{_COMPILING} {model.placed} {model.toolchain} {model.digest}"
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


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
