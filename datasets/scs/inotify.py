"""File watch: reports files that are deleted or changed, with inotify, so that caches of them can be invalidated."""

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
_READ_SIZE = 64 << 10


class FileWatch:
    """Watch on folders. The kernel queues an event before the system call that caused it, in any process, returns.

    ``works`` is false where inotify does not: the machine has too many watches, or the file system reports no events.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.works = self.descriptor >= 0
        self._folders: dict[int, str] = {}
        for folder in folders:
            watch: int = libc.inotify_add_watch(self.descriptor, os.fsencode(folder), _MODIFY | _MOVED_FROM | _DELETE)
            if watch < 0:
                logger.warning(
                    "inotify cannot watch the cache's folder, so every response opens its file: %s",
                    os.strerror(ctypes.get_errno()),
                )
                self.works = False
                break
            self._folders[watch] = str(folder)
        if self.works:
            self._probe(folder)

    def _probe(self, folder: Path) -> None:
        """Check that events arrive: some file systems accept a watch and report nothing."""
        probe = folder / f"probe.{os.getpid()}"
        with suppress(OSError):  # a full disk
            probe.touch()
            probe.unlink()
        self.works = bool(self.changed_paths())

    def changed_paths(self) -> list[str | None]:
        """Return the paths deleted or changed since the last call; None among them: any path may be affected."""
        paths: list[str | None] = []
        with suppress(BlockingIOError):
            while self.works:
                events = os.read(self.descriptor, _READ_SIZE)
                offset = 0
                while offset < len(events):
                    watch, mask, _, length = _EVENT.unpack_from(events, offset)
                    offset += _EVENT.size
                    name = events[offset : offset + length].rstrip(b"\0")
                    offset += length
                    # without a name: the queue overflowed, or the event concerns a folder itself
                    paths.append(f"{self._folders[watch]}/{os.fsdecode(name)}" if name else None)
                    if mask & (_UNMOUNT | _IGNORED):
                        self.works = False
        return paths

    def close(self) -> None:
        """Stop watching."""
        self.works = False
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
