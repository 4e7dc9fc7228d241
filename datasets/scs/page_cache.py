"""Page cache: whether a file's bytes are in memory, so that the event loop never waits for a disk.

Linux can read without waiting where the file system supports it (RWF_NOWAIT: ext4, XFS, Btrfs). Where it does not, as
on tmpfs, all bytes count as in memory.
"""

import os
from pathlib import Path

#: Bytes that the kernel usually reads ahead.
_READAHEAD = 128 << 10


class PageCache:
    """Non-blocking reads, where the file system of ``folder`` supports them."""

    def __init__(self, folder: Path) -> None:
        probe = folder / f"probe.{os.getpid()}"
        descriptor = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.unlink(probe)
            os.write(descriptor, b"x")
            self._flags = os.RWF_NOWAIT
            os.preadv(descriptor, [bytearray(1)], 0, self._flags)
        except OSError:
            self._flags = 0
        finally:
            os.close(descriptor)

    def read(self, file: int, buffer: memoryview, start: int) -> int:
        """Read bytes that are in memory; return fewer than requested if the disk would block or fails."""
        try:
            return os.preadv(file, [buffer], start, self._flags)
        except OSError:
            return 0

    def resident(self, file: int, start: int, end: int) -> bool:
        """Tell whether a window is in memory, judging by its last byte and, if the window is large, by its first."""
        if not self._flags:
            return True
        buffer = bytearray(1)
        try:
            if end - start > _READAHEAD and os.preadv(file, [buffer], start, self._flags) != 1:
                return False
            return os.preadv(file, [buffer], end - 1, self._flags) == 1
        except OSError:
            return False
