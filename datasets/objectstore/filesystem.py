"""Objects as files under one folder: written beside, fsynced, renamed into place, the folder fsynced."""

import errno
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path

from datasets.objectstore.base import check_key
from errors import NotFound

CHUNK = 1 << 20
#: Seconds after which half an object is nobody's work any more.
ABANDONED = 86_400.0
#: Bytes of the disk, and the part of a small one, that are left to others: a database beside us has to write down what
#: is deleted, and on a disk that is filled to the last byte nothing can be.
LEFT, PART_LEFT = 64 << 20, 64
#: Bytes that are written between two looks at how much is left.
LOOK = 4 << 20


class FilesystemStore:
    """An object store in a folder of this machine."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._partial = self.root / ".partial"
        self._partial.mkdir(parents=True, exist_ok=True)
        self._sweep()

    def put(self, key: str, chunks: Iterable[bytes]) -> int:
        """Store an object; a crash leaves at most a file in ``.partial``, swept after a day."""
        target = self._path(key)
        draft = self._partial / f"{os.getpid()}-{secrets.token_hex(8)}"
        size = looked = 0
        try:
            with open(draft, "xb", buffering=0) as file:
                for chunk in chunks:
                    view = memoryview(chunk)
                    if size == 0 or size - looked >= LOOK:
                        looked = size
                        self._leave_room(len(view))
                    while view:
                        written = file.write(view)
                        size += written
                        view = view[written:]
                os.fsync(file.fileno())
            self._make_folder(target.parent)
            os.rename(draft, target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        self._sync(target.parent)
        return size

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Open at once, so that a missing object is known before the first chunk is asked for."""
        try:
            file = open(self._path(key), "rb", buffering=0)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"There is no object {key}.") from None
        return self._read(file, start, length)

    @staticmethod
    def _read(file: FileIO, start: int, length: int | None) -> Iterator[bytes]:
        with file:
            file.seek(start)
            left = length
            while left is None or left > 0:
                chunk = file.read(CHUNK if left is None else min(CHUNK, left))
                if not chunk:
                    return
                if left is not None:
                    left -= len(chunk)
                yield chunk

    def size(self, key: str) -> int:
        """Return the size in bytes."""
        try:
            return self._path(key).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"There is no object {key}.") from None

    def delete(self, key: str) -> None:
        """Remove the file; empty folders stay, they cost nothing."""
        self._path(key).unlink(missing_ok=True)

    def list(self, prefix: str) -> Iterator[str]:
        """Walk only the folder the prefix leads to, holding one folder's names at a time."""
        folder = prefix.rpartition("/")[0]
        if folder:
            check_key(folder)
        return self._walk(self.root / folder, f"{folder}/" if folder else "", prefix)

    def _walk(self, folder: Path, before: str, prefix: str) -> Iterator[str]:
        try:
            with os.scandir(folder) as found:
                # A folder sorts as its keys do: with the slash, which comes after "-" and "." and before letters.
                names = sorted(entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in found)
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            key = before + name
            if not key.endswith("/"):
                if key.startswith(prefix):
                    yield key
            elif not name.startswith(".") and (key.startswith(prefix) or prefix.startswith(key)):
                yield from self._walk(folder / name, key, prefix)

    def link(self, key: str, *, seconds: int, verb: str = "GET", filename: str | None = None) -> str | None:
        """Nobody else can reach a folder of this machine."""
        check_key(key)
        return None

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def _leave_room(self, size: int) -> None:
        disk = os.statvfs(self._partial)
        left = min(LEFT, disk.f_blocks * disk.f_frsize // PART_LEFT)
        if left and disk.f_bavail * disk.f_frsize < size + left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _sweep(self) -> None:
        with os.scandir(self._partial) as drafts:
            for draft in drafts:
                try:
                    if draft.stat(follow_symlinks=False).st_mtime < time.time() - ABANDONED:
                        os.unlink(draft.path)
                except FileNotFoundError:
                    continue  # its writer, or another sweeper, was quicker

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        self._sync(folder.parent)

    def _sync(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
