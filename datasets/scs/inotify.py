"""Files that go or change, told by the kernel at once (inotify): whoever remembers them can forget them in time."""

import ctypes
import logging
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)
_MODIFY, _MOVED_FROM, _DELETE, _UNMOUNT, _IGNORED = 0x2, 0x40, 0x200, 0x2000, 0x8000
_EVENT = struct.Struct("iIII")
_TAKE = 64 << 10


class Watch:
    """A look at folders. The kernel has an event ready before the call that caused it, in any process, returns.

    ``works`` is false where the kernel tells nothing: too many watches on the machine, or an unusual file system.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.works = self.descriptor >= 0
        self._folders: dict[int, str] = {}
        for folder in folders:
            mark: int = libc.inotify_add_watch(self.descriptor, os.fsencode(folder), _MODIFY | _MOVED_FROM | _DELETE)
            if mark < 0:
                logger.warning("files cannot be watched: %s", os.strerror(ctypes.get_errno()))
                self.works = False
                break
            self._folders[mark] = str(folder)
        if self.works:
            self._try(folder)

    def _try(self, folder: Path) -> None:
        """See whether something comes: some file systems accept a watch and then say nothing."""
        probe = folder / f"probe.{os.getpid()}"
        with suppress(OSError):  # a full disk
            probe.touch()
            probe.unlink()
        self.works = bool(self.gone())

    def gone(self) -> list[str | None]:
        """Return the paths that went or changed since the last time; None among them: any may have."""
        found: list[str | None] = []
        with suppress(BlockingIOError):
            while self.works:
                said = os.read(self.descriptor, _TAKE)
                at = 0
                while at < len(said):
                    mark, mask, _, length = _EVENT.unpack_from(said, at)
                    at += _EVENT.size
                    name = said[at : at + length].rstrip(b"\0")
                    at += length
                    # without a name: too much happened to tell it all, or a folder itself went
                    found.append(f"{self._folders[mark]}/{os.fsdecode(name)}" if name else None)
                    if mask & (_UNMOUNT | _IGNORED):
                        self.works = False
        return found

    def close(self) -> None:
        """Look no more."""
        self.works = False
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
