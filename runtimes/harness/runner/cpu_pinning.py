"""CPU pinning: an evaluator and its model server share a core, because alternating processes wake faster on one core.

They are of the policy SCHED_BATCH there: a process that wakes the other goes on until it waits for the answer.
Otherwise the kernel often switches twice more at each step.

Without assigned cores, each runner of a node balances by itself: it moves to an idle core while its own core is full.
That helps if another process competes for the core, and does no harm otherwise.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

#: Seconds between two rounds. Nothing is pinned before the first round: starting processes use all cores.
ROUND = 2.0
#: Utilization at which a core counts as full, and as idle.
FULL, IDLE = 0.9, 0.4
#: Probability of a possible move: runners that measure at the same moment must not all choose the same core.
LIKELY = 0.5


def choose(core: int | None, busy: Mapping[int, float], lot: float) -> int | None:
    """Return the core to use, by each core's utilization; ``lot`` is a fresh random number in [0, 1)."""
    if len(busy) < 2:
        return core
    least = min(busy.values())
    calm = [candidate for candidate, share in busy.items() if share <= least + 0.1]
    if core is None or core not in busy:
        return calm[int(lot * len(calm))]
    if busy[core] >= FULL and least <= IDLE and lot < LIKELY:
        return calm[int(lot / LIKELY * len(calm))]
    return core


def pin(pid: int, core: int) -> None:
    """Pin a process and its descendants to one core, where none of them preempts what wakes it."""
    pids = [pid]
    for current in pids:
        with contextlib.suppress(OSError):  # the process may be ending, or may not use that core
            os.sched_setaffinity(current, {core})
            os.sched_setscheduler(current, os.SCHED_BATCH, os.sched_param(0))
        with contextlib.suppress(OSError):
            with open(f"/proc/{current}/task/{current}/children") as children:
                pids += map(int, children.read().split())


class CpuMeter:
    """Measures the utilization of each allowed core between two readings."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._last = self._times()

    def read(self) -> dict[int, float]:
        """Return each core's busy share since the last reading, 0 to 1."""
        last, self._last = self._last, self._times()
        allowed = os.sched_getaffinity(0)
        return {
            core: 1 - (idle - last[core][1]) / max(1, total - last[core][0])
            for core, (total, idle) in self._last.items()
            if core in allowed and core in last
        }

    def _times(self) -> dict[int, tuple[int, int]]:
        times = {}
        for line in self._stat.read_text().splitlines():
            name, *fields = line.split()
            if name.startswith("cpu") and name[3:].isdigit():
                spent = list(map(int, fields[:8]))
                times[int(name[3:])] = sum(spent), spent[3] + spent[4]  # idle, and waiting for a disk
        return times
