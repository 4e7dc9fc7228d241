"""Counters of one worker process, in memory that it shares with the process that started it.

They outlive the worker: a process that replaces it goes on counting. Each field has one writer at a time.
"""

import ctypes
import math
from multiprocessing.sharedctypes import RawValue


class WorkerStatistics(ctypes.Structure):
    """What a worker process of one kind has done, and until when its present job may take."""

    _fields_ = (
        ("done", ctypes.c_long),  # attempts that succeeded
        ("failed", ctypes.c_long),  # by an exception, at their timeout, or with the forked process they ran in
        ("ended", ctypes.c_long),  # unexpected ends of the worker process
        ("seconds", ctypes.c_double),  # that the attempts took
        ("deadline", ctypes.c_double),  # moment of the monotonic clock at which the worker process is killed
    )
    kind: str
    done: int
    failed: int
    ended: int
    seconds: float
    deadline: float

    @classmethod
    def of_kind(cls, kind: str) -> "WorkerStatistics":
        """Return the statistics of a worker of a kind, which the processes share that are forked from now on."""
        statistics = RawValue(cls)
        statistics.kind, statistics.deadline = kind, math.inf
        return statistics

    def add_attempt(self, *, failed: bool, seconds: float) -> None:
        """Count an attempt."""
        self.done += not failed
        self.failed += failed
        self.seconds += seconds
