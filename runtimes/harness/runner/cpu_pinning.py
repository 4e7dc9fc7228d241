"""Which core an evaluator and its model server share: two that take turns wake each other faster on one than across
two.

Where nobody gives cores out, each runner of a node looks for itself: it moves to a core that idles while its own is
full. That is right where somebody else is on its own, and does no harm where it was alone there.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

#: Seconds between two looks. Not before the first is anybody kept to a core: what begins needs all there are.
ROUND = 2.0
#: Shares of its time for which a core counts as full, and as idle.
FULL, IDLE = 0.9, 0.4
#: How likely one moves that could: who looks at the same moment as others shall not follow them all.
LIKELY = 0.5


def choose(core: int | None, busy: Mapping[int, float], lot: float) -> int | None:
    """Return the core to be on, by how busy each was; ``lot`` is drawn anew each time, from 0 to 1."""
    if len(busy) < 2:
        return core
    least = min(busy.values())
    calm = [one for one, share in busy.items() if share <= least + 0.1]
    if core is None or core not in busy:
        return calm[int(lot * len(calm))]
    if busy[core] >= FULL and least <= IDLE and lot < LIKELY:
        return calm[int(lot / LIKELY * len(calm))]
    return core


def pin(pid: int, core: int) -> None:
    """Keep a process, and what it has started, on one core."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):  # it may be ending, or that core is not for it
            os.sched_setaffinity(one, {core})
            with open(f"/proc/{one}/task/{one}/children") as children:
                found += map(int, children.read().split())


class Meter:
    """Tells how busy each core that we may use was since the last time."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._last = self._times()

    def read(self) -> dict[int, float]:
        """Return each core's share of time at work."""
        last, self._last = self._last, self._times()
        allowed = os.sched_getaffinity(0)
        return {
            core: 1 - (idle - last[core][1]) / max(1, total - last[core][0])
            for core, (total, idle) in self._last.items()
            if core in allowed and core in last
        }

    def _times(self) -> dict[int, tuple[int, int]]:
        found = {}
        for line in self._stat.read_text().splitlines():
            name, *words = line.split()
            if name.startswith("cpu") and name[3:].isdigit():
                spent = list(map(int, words[:8]))
                found[int(name[3:])] = sum(spent), spent[3] + spent[4]  # idle, and waiting for a disk
        return found
