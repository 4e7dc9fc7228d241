"""Counters of one worker process, in memory that it shares with the process that started it.

They outlive the worker: a process that replaces it goes on counting. Each field has one writer at a time.
"""

import ctypes
import math
from multiprocessing.sharedctypes import RawArray


class WorkerStatistics:
    """What a worker process of one kind has done, and until when its present job may take."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._numbers = RawArray(ctypes.c_double, 5)
        self.deadline = math.inf

    @property
    def done(self) -> int:
        """Attempts that succeeded."""
        return int(self._numbers[0])

    @property
    def failed(self) -> int:
        """Attempts that failed: by an exception, at their timeout, or with the forked process they ran in."""
        return int(self._numbers[1])

    @property
    def seconds(self) -> float:
        """Seconds that the attempts took."""
        return float(self._numbers[2])

    @property
    def ended(self) -> int:
        """Unexpected ends of the worker process."""
        return int(self._numbers[3])

    @property
    def deadline(self) -> float:
        """Moment of the monotonic clock at which the worker process is killed."""
        return float(self._numbers[4])

    @deadline.setter
    def deadline(self, moment: float) -> None:
        self._numbers[4] = moment

    def add_attempt(self, *, failed: bool, seconds: float) -> None:
        """Count an attempt."""
        self._numbers[1 if failed else 0] += 1
        self._numbers[2] += seconds

    def add_end(self) -> None:
        """Count an end of the worker process."""
        self._numbers[3] += 1
