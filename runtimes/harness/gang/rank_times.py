"""Rank times: what the ranks of a program that goes on have computed for each task, by the kernel's account."""

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from .rank_ends import RankEnd

#: Clock ticks per second.
_TICKS = os.sysconf("SC_CLK_TCK")


class RankTimes:
    """The processor time of ranks. ``ends``: the folder in which each has noted its program's process."""

    def __init__(self, ends: Path, ranks: range, proc: Path) -> None:
        self._ends, self._ranks, self._proc = ends, ranks, proc
        self._before: dict[int, float] = {}
        self._since = time.time()

    def since_last(self) -> Sequence[RankEnd]:
        """Return for each rank that is there what it has computed since the last call, as if it had ended well now."""
        now, since = time.time(), self._since
        self._since = now
        times = {rank: seconds for rank in self._ranks if (seconds := self._seconds(rank)) is not None}
        before, self._before = self._before, times
        return [
            RankEnd(
                rank=rank,
                host=socket.gethostname(),
                exit=0,
                began=since,
                ended=now,
                computing=max(0.0, seconds - before.get(rank, 0.0)),
            )
            for rank, seconds in times.items()
        ]

    def _seconds(self, rank: int) -> float | None:
        """Return the processor time of a rank's program, and of its children that have ended; None: it is gone."""
        try:
            process = int((self._ends / f".pid-{rank}").read_text())
            # The name before these fields may contain parentheses.
            fields = (self._proc / str(process) / "stat").read_text().rpartition(")")[2].split()
            return sum(map(int, fields[11:15])) / _TICKS
        except (OSError, ValueError):
            return None
