"""Tar writer: a folder as the chunks of a tar (ustar), equal for equal folders, without holding it in memory."""

import hashlib
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

CHUNK = 1 << 20
_BLOCK = 512


class MeasuredTar:
    """The chunks of a folder's tar; its digest and its size in bytes are known once they have been read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.digest, self.size = "", 0

    def __iter__(self) -> Iterator[bytes]:
        hasher = hashlib.sha256()
        self.size = 0
        for chunk in self._chunks():
            hasher.update(chunk)
            self.size += len(chunk)
            yield chunk
        self.digest = "sha256:" + hasher.hexdigest()

    def _chunks(self) -> Iterator[bytes]:
        for path in sorted(_files(self._folder)):
            entry = tarfile.TarInfo(path.relative_to(self._folder).as_posix())
            status = path.stat()
            entry.size, entry.mode = status.st_size, status.st_mode & 0o555
            yield entry.tobuf(tarfile.PAX_FORMAT)
            with open(path, "rb") as file:
                while data := file.read(CHUNK):
                    yield data
            yield bytes(-entry.size % _BLOCK)
        yield bytes(2 * _BLOCK)


def _files(folder: Path) -> Iterator[Path]:
    for above, _, names in os.walk(folder):
        yield from (path for path in (Path(above, name) for name in names) if path.is_file())  # no links to nothing
