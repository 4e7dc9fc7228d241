"""Demand for job workers: how many jobs of each kind wait in Redis, read in one process and shared with its parent."""

import ctypes
import time
from collections.abc import Sequence
from multiprocessing.sharedctypes import RawArray

from core.domain.scheduling.job_kinds import JobKind
from core.notifications.redis_client import OUTAGES, TIMEOUT, client

#: Seconds after which numbers that were not read again are no longer believed.
STALE = 5.0
_UNKNOWN = -1


class JobDemand:
    """Numbers of waiting jobs by kind, in memory that the process that reads them shares with its parent."""

    def __init__(self, kinds: Sequence[JobKind], now: float) -> None:
        self._indices = {kind.name: index for index, kind in enumerate(kinds)}
        self._waiting = RawArray(ctypes.c_long, len(kinds))
        self._since = RawArray(ctypes.c_double, [now] * len(kinds))
        self._read_at = RawArray(ctypes.c_double, [now])

    def record(self, waiting: Sequence[int] | None, now: float) -> bool:
        """Record the waiting jobs, None if Redis does not answer; return whether more jobs wait than before."""
        more = False
        for index in range(len(self._indices)):
            number = _UNKNOWN if waiting is None else waiting[index]
            if number == 0 or self._waiting[index] == 0:
                self._since[index] = now
            more = more or number > self._waiting[index] or number == _UNKNOWN != self._waiting[index]
            self._waiting[index] = number
        self._read_at[0] = now
        return more

    def waiting(self, kind: str, now: float) -> int | None:
        """Return how many jobs of a kind wait; None if that is not known."""
        number = self._waiting[self._indices[kind]]
        return None if number == _UNKNOWN or now - self._read_at[0] > STALE else number

    def seconds(self, kind: str, now: float) -> float:
        """Return for how many seconds there have been waiting jobs of a kind."""
        return now - float(self._since[self._indices[kind]])


class DemandReader:
    """Reads the lengths of the queues of all kinds."""

    def __init__(self, url: str, kinds: Sequence[JobKind], demand: JobDemand) -> None:
        self._connection = client(url, TIMEOUT)
        self._keys = [f"rq:queue:{kind.queue}" for kind in kinds]
        self._demand = demand

    def read(self) -> bool:
        """Read and record the lengths; return whether more jobs wait than before."""
        waiting: list[int] | None
        try:
            with self._connection.pipeline(transaction=False) as pipeline:
                for key in self._keys:
                    pipeline.llen(key)
                waiting = [
                    length if isinstance(length, int) else 0 for length in pipeline.execute(raise_on_error=False)
                ]
        except OUTAGES:
            waiting = None
        return self._demand.record(waiting, time.monotonic())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
