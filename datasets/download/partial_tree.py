"""Drafts: folders in the making, that nobody takes for whole, and the bytes that are poured into their files."""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from datasets.download.range_coalescing import Stretch
from datasets.versions.file_names import checked, shown
from datasets.versions.manifest import Entry
from errors import BadName, Corrupt, NodeFull

#: Folders remembered as made, so that not every file asks the kernel.
_REMEMBERED = 10_000
_CHUNK = 1 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Mismatch(Corrupt):
    """What came is not what its digest says; the file is begun anew."""


class TooLong(Exception):
    """More bytes came than were asked for."""


def full(error: OSError) -> bool:
    """Tell whether it is for want of room that a write failed."""
    return error.errno in _FULL


class Draft:
    """A folder that fills with verified files. Its names are checked here again: a manifest may come from anywhere."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._made: set[str] = set()

    def path(self, entry: Entry) -> str:
        """Return where a file goes: below the folder, whatever it is called."""
        if checked(entry.path) != entry.path:
            raise BadName(f"The name {shown(entry.path)} is not written as it is kept.")
        return f"{self.folder}/{entry.path}"

    def open(self, entry: Entry) -> int:
        """Begin a file, in place of what an earlier attempt may have left."""
        path = self.path(entry)
        parent = path.rpartition("/")[0]
        try:
            if parent not in self._made:
                os.makedirs(parent, exist_ok=True)
                if len(self._made) >= _REMEMBERED:
                    self._made.clear()
                self._made.add(parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                descriptor = os.open(path, flags, 0o444)
            except FileExistsError:
                os.unlink(path)
                descriptor = os.open(path, flags, 0o444)
        except (NotADirectoryError, FileExistsError, IsADirectoryError):
            raise BadName(f"There is {shown(entry.path)} both as a file and as a folder.") from None
        os.fchmod(descriptor, 0o444)  # whatever the umask
        return descriptor

    def keeps(self, entry: Entry) -> bool:
        """Tell whether an earlier attempt left this file, whole."""
        return sound(Path(self.path(entry)), entry.size, entry.digest)

    def seal(self) -> None:
        """Take away everybody's right to write."""
        for folder, _, _ in os.walk(self.folder, topdown=False):
            os.chmod(folder, 0o555)

    def thaw(self) -> None:
        """Give its owner the right to write again, for who is not root."""
        for folder, _, _ in os.walk(self.folder):
            os.chmod(folder, 0o700)

    def discard(self) -> None:
        """Remove it."""
        if self.folder.exists():
            self.thaw()
            shutil.rmtree(self.folder)


def sound(path: Path, size: int, digest: str) -> bool:
    """Tell whether a file holds what its digest says."""
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


class Pouring:
    """Cuts the bytes of a stretch into files, verifies each, and knows where to go on after an interruption."""

    def __init__(self, stretch: Stretch, draft: Draft, came: Callable[[int, int], None]) -> None:
        """``came`` is told of bytes and of finished files; of fewer bytes where a file is begun anew."""
        self._stretch = stretch
        self._draft = draft
        self._came = came
        self._next = 0
        self._descriptor = -1
        self._hasher = hashlib.sha256()
        self.position = stretch.start
        self._begin()

    @property
    def done(self) -> bool:
        """Whether every file is there."""
        return self._next == len(self._stretch.entries)

    def write(self, data: bytes) -> None:
        """Take the bytes at ``position``. Raise Mismatch at the end of a file that is not what its digest says."""
        view = memoryview(data)
        while view:
            if self.done:
                raise TooLong
            entry = self._stretch.entries[self._next]
            if self.position < entry.offset:  # of no file we want
                gap = min(entry.offset - self.position, len(view))
                self.position += gap
                view = view[gap:]
                continue
            part = view[: entry.offset + entry.size - self.position]
            self._hasher.update(part)
            self._store(part)
            self.position += len(part)
            self._came(len(part), 0)
            view = view[len(part) :]
            if self.position == entry.offset + entry.size:
                self._check(entry)
                self._begin()

    def restart(self) -> None:
        """Go back to the beginning of the file at hand."""
        if not self.done:
            self.close()
            again = min(self.position, self._stretch.entries[self._next].offset)
            self._came(again - self.position, 0)
            self.position = again
            self._begin()

    def close(self) -> None:
        """Let go of the file at hand; it stays as it is."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _begin(self) -> None:
        """Make ready for the next file; those that are empty are done at once."""
        while not self.done:
            entry = self._stretch.entries[self._next]
            self._hasher = hashlib.sha256()
            if entry.size:
                return
            self._descriptor = self._opened(entry)
            self._check(entry)

    def _check(self, entry: Entry) -> None:
        self.close()
        if "sha256:" + self._hasher.hexdigest() != entry.digest:
            raise Mismatch
        self._next += 1
        self._came(0, 1)

    def _opened(self, entry: Entry) -> int:
        try:
            return self._draft.open(entry)
        except OSError as error:
            raise _translated(error) from None

    def _store(self, data: memoryview) -> None:
        if self._descriptor < 0:
            self._descriptor = self._opened(self._stretch.entries[self._next])
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            raise _translated(error) from None


def _translated(error: OSError) -> Exception:
    if full(error):
        return NodeFull("This node's disk is full; nothing of what was being staged is used. Make room, and try again.")
    return error
