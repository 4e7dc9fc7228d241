"""Run delay: the time in which a thread was ready to run and the machine ran something else (proc_pid_schedstat(5))."""

import os
from contextlib import suppress


class RunDelay:
    """The run delay of the thread that makes this."""

    def __init__(self) -> None:
        self._file = -1
        with suppress(OSError):  # a kernel without CONFIG_SCHEDSTATS, or a sandbox without its /proc
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self._taken = self._total()

    def take(self) -> float:
        """Return the run delay in seconds since the last call; 0 if it is unknown."""
        before, self._taken = self._taken, self._total()
        return max(0.0, self._taken - before)

    def close(self) -> None:
        """Close the file; later calls return 0."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _total(self) -> float:
        if self._file < 0:
            return 0.0
        with suppress(OSError, IndexError, ValueError):
            return int(os.pread(self._file, 100, 0).split()[1]) / 1e9
        return 0.0
