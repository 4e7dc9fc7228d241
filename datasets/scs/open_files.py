"""Objects' files that were read lately, kept open, and small ones' bytes: a hot object costs no path look-up.

Nothing is remembered that is not so any more: the kernel tells when a file goes or changes, and it is forgotten before
the next request is answered. So there is also nobody who holds the room of a file that had to go.
"""

import os
from pathlib import Path

from datasets.scs.inotify import Watch
from datasets.scs.page_cache import Pages
from datasets.scs.store import Object

#: Objects up to this size are kept and sent as bytes; larger go from the page cache to the socket by themselves.
SMALL = 32 << 10
#: Larger files are opened for every answer: that costs next to nothing beside sending them, and they hold much room.
_LARGE = 4 << 20
#: Bytes of small objects in all.
_BODIES = 32 << 20
#: Seconds for which a file that lay in memory is taken to lie there still.
_WARM = 1.0


class File:
    """An object's file, closed as soon as nobody refers to it any more; only its bytes, if those are few."""

    __slots__ = ("body", "descriptor", "size", "used", "warm")

    def __init__(self, descriptor: int, size: int, body: bytes | None) -> None:
        self.descriptor, self.size, self.body = descriptor, size, body
        #: Until when, on the monotonic clock, all of it is taken to lie in memory.
        self.warm = 0.0
        self.used = True

    def __del__(self, close=os.close) -> None:  # type: ignore[no-untyped-def]
        if self.descriptor >= 0:
            close(self.descriptor)

    def lies_in_memory(self, now: float) -> None:
        """Take note that all of it does."""
        self.warm = now + _WARM


class Changed(Exception):
    """The file is of another size than it was."""


class Cold(Exception):
    """The file is small, and yet the disk has to be waited for."""


class Recent:
    """Files opened lately, ``most`` of them. Used by the loop alone.

    What is in is not replaced by what comes while it is used: of a set that is read over and over, in any order, and is
    too large to be kept open as a whole, a part always is.
    """

    def __init__(self, folder: Path, pages: Pages, most: int) -> None:
        self._pages, self._most = pages, most
        self._files: dict[str, File] = {}
        self._bytes = 0
        self.watch = Watch(folder / f"{number:02x}" for number in range(256))

    def __len__(self) -> int:
        return len(self._files)

    def open(self, found: Object) -> File:
        """Return an object's file; raise FileNotFoundError, Changed or Cold."""
        file = self._files.get(found.path)
        if file is not None:
            file.used = True
            return file
        file = self._open(found)
        if len(self._files) < self._most and self.watch.works and found.size <= _LARGE:
            if file.body is None or self._bytes + file.size <= _BODIES:
                self._files[found.path] = file
                self._bytes += len(file.body or b"")
        return file

    def _open(self, found: Object) -> File:
        file = File(os.open(found.path, os.O_RDONLY | os.O_CLOEXEC), found.size, None)
        if found.size > SMALL:
            if os.lseek(file.descriptor, 0, os.SEEK_END) != found.size:
                raise Changed
            return file
        body = bytearray(found.size)
        if self._pages.read(file.descriptor, memoryview(body), 0) != found.size:
            raise Cold
        return File(-1, found.size, bytes(body))

    def look(self) -> None:
        """Forget what has gone or changed by now."""
        for path in self.watch.gone():
            for each in [path] if path is not None else list(self._files):
                self._forget(each)

    def sweep(self) -> None:
        """Make room, once a second, for what is used now, if there is none: what was not used since goes."""
        if len(self._files) < self._most and self._bytes + SMALL <= _BODIES:
            return
        for path, file in list(self._files.items()):
            if not file.used:
                self._forget(path)
            file.used = False

    def _forget(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            self._bytes -= len(file.body or b"")

    def close(self) -> None:
        """Forget everything."""
        self.watch.close()
        self._files.clear()
