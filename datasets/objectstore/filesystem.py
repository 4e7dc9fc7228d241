"""Filesystem object store: each object is written to a temporary file, fsynced, renamed; the folder is fsynced."""

import logging
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path

from common.ages import is_old_enough
from common.errors import NotFound, StorageFull, StoreUnavailable
from common.full_disks import is_disk_full
from datasets.objectstore.base import check_key

logger = logging.getLogger(__name__)

CHUNK = 1 << 20
#: Seconds after which a partial object counts as abandoned.
ABANDONED = 86_400.0
#: Bytes of the disk that are left free (on a small disk, the fraction 1 / RESERVE_FRACTION): a database on the same
#: disk needs free space even to delete rows.
RESERVE, RESERVE_FRACTION = 64 << 20, 64
#: Bytes that are written between two checks of the free space.
CHECK_INTERVAL = 4 << 20


class FilesystemStore:
    """Object store in a local folder."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._partial = self.root / ".partial"
        self._partial.mkdir(parents=True, exist_ok=True)
        self._sweep()

    def put(self, key: str, chunks: Iterable[bytes]) -> int:
        """Store an object; a crash leaves at most a file in ``.partial``, swept after a day."""
        source = _Source(chunks)
        try:
            return self._put(key, source)
        except OSError as error:
            if source.failed:
                raise
            raise StorageFull() if is_disk_full(error) else self._unavailable(error) from None

    def _put(self, key: str, chunks: Iterable[bytes]) -> int:
        target = self._path(key)
        draft = self._partial / f"{os.getpid()}-{secrets.token_hex(8)}"
        size = checked_at = 0
        try:
            with open(draft, "xb", buffering=0) as file:
                for chunk in chunks:
                    view = memoryview(chunk)
                    if size == 0 or size - checked_at >= CHECK_INTERVAL:
                        checked_at = size
                        self._check_free_space(len(view))
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
        """Yield the bytes; the file is opened at once, so that a missing object raises before the first chunk."""
        try:
            file = open(self._path(key), "rb", buffering=0)
        except OSError as error:
            raise self._missing(key, error) from None
        return self._read(file, start, length)

    def _read(self, file: FileIO, start: int, length: int | None) -> Iterator[bytes]:
        with file:
            file.seek(start)
            remaining = length
            while remaining is None or remaining > 0:
                try:
                    chunk = file.read(CHUNK if remaining is None else min(CHUNK, remaining))
                except OSError as error:
                    raise self._unavailable(error) from None
                if not chunk:
                    return
                if remaining is not None:
                    remaining -= len(chunk)
                yield chunk

    def size(self, key: str) -> int:
        """Return the size in bytes."""
        try:
            return self._path(key).stat().st_size
        except OSError as error:
            raise self._missing(key, error) from None

    def delete(self, key: str) -> None:
        """Remove the file; empty folders stay."""
        try:
            self._path(key).unlink()
        except OSError as error:
            missing = self._missing(key, error)
            if isinstance(missing, StoreUnavailable):
                raise missing from None

    def list(self, prefix: str) -> Iterator[str]:
        """Yield keys; walks only the prefix's folder, with the names of one folder per level in memory."""
        folder = prefix.rpartition("/")[0]
        if folder:
            check_key(folder)
        return self._walk(self.root / folder, f"{folder}/" if folder else "", prefix)

    def _walk(self, folder: Path, parent: str, prefix: str) -> Iterator[str]:
        try:
            with os.scandir(folder) as entries:
                # A folder is sorted with its slash, like its keys: "/" comes after "-" and "." and before letters.
                names = sorted(entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in entries)
        except OSError as error:
            missing = self._missing(parent, error)
            if isinstance(missing, StoreUnavailable):
                raise missing from None
            return
        for name in names:
            key = parent + name
            if not key.endswith("/"):
                if key.startswith(prefix):
                    yield key
            elif not name.startswith(".") and (key.startswith(prefix) or prefix.startswith(key)):
                yield from self._walk(folder / name, key, prefix)

    def link(self, key: str, *, seconds: int, verb: str = "GET", filename: str | None = None) -> str | None:
        """Return None: a local folder has no URL."""
        check_key(key)
        return None

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def _missing(self, key: str, error: OSError) -> NotFound | StoreUnavailable:
        """Return the error for a file that cannot be opened; without the store's folder, no object is missing."""
        if isinstance(error, FileNotFoundError | NotADirectoryError) and self._partial.is_dir():
            return NotFound(f"There is no object {key}.")
        return self._unavailable(error)

    def _unavailable(self, error: OSError) -> StoreUnavailable:
        logger.warning("object store: %s: %s", self.root, error)
        return StoreUnavailable(f"The object store's folder (OBJECT_STORE_URL) cannot be used: {error.strerror}.")

    def _check_free_space(self, size: int) -> None:
        disk = os.statvfs(self._partial)
        reserve = reserve_of(disk)
        if reserve and disk.f_bavail * disk.f_frsize < size + reserve:
            raise StorageFull()

    def _sweep(self) -> None:
        with os.scandir(self._partial) as drafts:
            for draft in drafts:
                try:
                    if is_old_enough(draft.stat(follow_symlinks=False).st_mtime, ABANDONED, time.time()):
                        os.unlink(draft.path)
                except FileNotFoundError:
                    continue  # its writer or another process removed it

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


class _Source:
    """The chunks of a ``put``; keeps whether they raised an error, which is not the store's."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.failed = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._chunks
        except Exception:
            self.failed = True
            raise


def reserve_of(disk: os.statvfs_result) -> int:
    """Return the bytes of a disk that are left free."""
    return min(RESERVE, disk.f_blocks * disk.f_frsize // RESERVE_FRACTION)
