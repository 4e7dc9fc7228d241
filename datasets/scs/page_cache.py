"""Whether a file's bytes lie in memory already, so that the loop never waits for a disk.

Linux reads without waiting where the file system can (RWF_NOWAIT: ext4, XFS, Btrfs); where it cannot say, as tmpfs,
bytes are taken to be in memory.
"""

import os
from pathlib import Path

#: What the kernel reads ahead at once, as a rule.
_NEAR = 128 << 10


class Pages:
    """Reads that do not wait, as far as the file system of ``folder`` allows."""

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

    def read(self, file: int, into: memoryview, start: int) -> int:
        """Read what is in memory; fewer bytes than asked for where the disk has to be waited for, or is broken."""
        try:
            return os.preadv(file, [into], start, self._flags)
        except OSError:
            return 0

    def resident(self, file: int, start: int, end: int) -> bool:
        """Tell whether a window lies in memory, as its last byte does and, where that is far away, its first."""
        if not self._flags:
            return True
        one = bytearray(1)
        try:
            if end - start > _NEAR and os.preadv(file, [one], start, self._flags) != 1:
                return False
            return os.preadv(file, [one], end - 1, self._flags) == 1
        except OSError:
            return False

    def warm(self, file: int, start: int, end: int) -> None:
        """Bring a window into memory, waiting for the disk; a broken one shows when it is sent."""
        try:
            os.posix_fadvise(file, start, end - start, os.POSIX_FADV_WILLNEED)
            while start < end and (got := len(os.pread(file, min(256 << 10, end - start), start))):
                start += got
        except OSError:
            return
