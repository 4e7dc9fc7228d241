"""Partial trees: folders of a download in progress, and the writer that splits a byte range into verified files."""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from common.errors import BadName, Corrupt, NodeFull
from common.full_disks import is_disk_full
from datasets.download.range_coalescing import CoalescedRange
from datasets.versions.file_names import printable, validated
from datasets.versions.manifest import ManifestEntry

#: Folders that are remembered as created, which saves a system call per file.
_REMEMBERED_FOLDERS = 10_000
_CHUNK = 1 << 20


class CorruptDownload(Corrupt):
    """A file's bytes do not match its digest; the file is downloaded again from its start."""


class ExcessBytes(Exception):
    """A response had more bytes than were requested."""


class PartialTree:
    """A folder that is filled with verified files. Validates names again: a manifest may come from anywhere."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._created: set[str] = set()

    def path(self, entry: ManifestEntry) -> str:
        """Return a file's path, which is always below the folder; raise BadName for a name that is not normalized."""
        if validated(entry.path) != entry.path:
            raise BadName(f"The name {printable(entry.path)} is not in its normalized form.")
        return f"{self.folder}/{entry.path}"

    def open(self, entry: ManifestEntry) -> int:
        """Create a file and return its descriptor; a file left by an earlier attempt is replaced."""
        path = self.path(entry)
        parent = path.rpartition("/")[0]
        try:
            if parent not in self._created:
                os.makedirs(parent, exist_ok=True)
                if len(self._created) >= _REMEMBERED_FOLDERS:
                    self._created.clear()
                self._created.add(parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                descriptor = os.open(path, flags, 0o444)
            except FileExistsError:
                os.unlink(path)
                descriptor = os.open(path, flags, 0o444)
        except (NotADirectoryError, FileExistsError, IsADirectoryError):
            raise BadName(f"There is {printable(entry.path)} both as a file and as a folder.") from None
        os.fchmod(descriptor, 0o444)  # whatever the umask
        return descriptor

    def has_intact(self, entry: ManifestEntry) -> bool:
        """Tell whether an earlier attempt left this file, complete and with the right digest."""
        return is_intact(Path(self.path(entry)), entry.size, entry.digest)

    def make_read_only(self) -> None:
        """Remove write permission from all folders."""
        for folder, _, _ in os.walk(self.folder, topdown=False):
            os.chmod(folder, 0o555)

    def make_writable(self) -> None:
        """Give the owner write permission on all folders again; needed where the process is not root."""
        for folder, _, _ in os.walk(self.folder):
            os.chmod(folder, 0o700)

    def discard(self) -> None:
        """Remove the folder with all its files."""
        if self.folder.exists():
            self.make_writable()
            shutil.rmtree(self.folder)


def is_intact(path: Path, size: int, digest: str) -> bool:
    """Tell whether a file exists with this size and digest."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, OSError):
        return False
    with open(descriptor, "rb", buffering=0) as file:
        if os.fstat(descriptor).st_size != size:
            return False
        hasher = hashlib.sha256()
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
    return "sha256:" + hasher.hexdigest() == digest


class RangeWriter:
    """Splits the bytes of a range into files, verifies each file, and knows where to resume after an interruption."""

    def __init__(self, range: CoalescedRange, partial: PartialTree, on_written: Callable[[int, int], None]) -> None:
        """``on_written(bytes, files)`` is called on progress; ``bytes`` is negative where a file is started again."""
        self._range = range
        self._partial = partial
        self._on_written = on_written
        self._next = 0
        self._descriptor = -1
        self._hasher = hashlib.sha256()
        self.position = range.start
        self._begin()

    @property
    def done(self) -> bool:
        """Whether every file is written and verified."""
        return self._next == len(self._range.entries)

    def write(self, data: bytes) -> None:
        """Write the bytes at ``position``. Raise CorruptDownload at the end of a file whose digest is wrong."""
        view = memoryview(data)
        while view:
            if self.done:
                raise ExcessBytes
            entry = self._range.entries[self._next]
            if self.position < entry.offset:  # a gap between two files
                gap = min(entry.offset - self.position, len(view))
                self.position += gap
                view = view[gap:]
                continue
            part = view[: entry.offset + entry.size - self.position]
            self._hasher.update(part)
            self._store(part)
            self.position += len(part)
            self._on_written(len(part), 0)
            view = view[len(part) :]
            if self.position == entry.offset + entry.size:
                self._verify(entry)
                self._begin()

    def restart(self) -> None:
        """Go back to the start of the current file."""
        if not self.done:
            self.close()
            start = min(self.position, self._range.entries[self._next].offset)
            self._on_written(start - self.position, 0)
            self.position = start
            self._begin()

    def close(self) -> None:
        """Close the current file; its bytes stay on disk."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _begin(self) -> None:
        """Prepare for the next file; empty files are finished at once."""
        while not self.done:
            entry = self._range.entries[self._next]
            self._hasher = hashlib.sha256()
            if entry.size:
                return
            self._descriptor = self._open(entry)
            self._verify(entry)

    def _verify(self, entry: ManifestEntry) -> None:
        self.close()
        if "sha256:" + self._hasher.hexdigest() != entry.digest:
            raise CorruptDownload
        self._next += 1
        self._on_written(0, 1)

    def _open(self, entry: ManifestEntry) -> int:
        try:
            return self._partial.open(entry)
        except OSError as error:
            raise _translated(error) from None

    def _store(self, data: memoryview) -> None:
        if self._descriptor < 0:
            self._descriptor = self._open(self._range.entries[self._next])
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            raise _translated(error) from None


def _translated(error: OSError) -> Exception:
    if is_disk_full(error):
        return NodeFull("This node's disk is full; the unfinished download is not used. Free space, and try again.")
    return error
