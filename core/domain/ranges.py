"""Ranges of task numbers: how much to lend, where to cut; pure decisions, the SQL is core/store/leases.py."""

from dataclasses import dataclass

#: Seconds of work a lease is worth, by the worker's own rate; long leases are harmless because they can be stolen.
SHORTEST, LONGEST = 0.5, 30.0
#: Tasks lent to a worker whose rate nobody knows yet.
FIRST = 256
#: Witnessed deaths in careful mode on one task before it gets the result `crashed`.
STRIKES = 3
#: Unwitnessed expiries of one range before the platform gives up on the simulation.
EXPIRIES = 20
#: a speculative lease is born when the cursor has not moved for this many seconds, or this many tasks' worth of time.
PATIENCE, PATIENCE_TASKS = 3.0, 4.0


@dataclass(frozen=True, slots=True)
class Lease:
    """A half-open range lent to one worker, which reports from ``cursor`` on; one result a report up to ``careful``."""

    stage: str
    start: int
    cursor: int
    stop: int
    fencing_token: str
    ttl: float
    careful: int = -1


@dataclass(frozen=True, slots=True)
class Later:
    """Nothing to lend just now; ask again in so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The stage has no more work, and will have none."""


def aligned(number: int, align: int) -> int:
    """Round up to a multiple, so that a group of tasks played in one frame is never split."""
    return -(-number // align) * align


def share(remaining: int, workers: int, rate: float | None, align: int = 1) -> int:
    """Return how many tasks to lend: a guided share of what remains, bounded by 0.5 to 30 s of the worker's work."""
    fair = -(-remaining // (2 * max(1, workers)))
    if rate is None or rate <= 0:
        size = min(fair, FIRST)
    else:
        size = int(min(max(fair, rate * SHORTEST), rate * LONGEST))
    return min(remaining, aligned(max(1, size), align))


def cut(cursor: int, stop: int, rate: float | None, flush: float, align: int = 1) -> int | None:
    """Return where to cut a victim's rest in two, or None where too little is left to be worth it.

    At least two tasks and two flushes of work must remain, else the end of a stage is a herd.
    """
    if stop - cursor < 2 or (rate is not None and stop - cursor < 2 * flush * rate):
        return None
    middle = aligned((cursor + stop + 1) // 2, align)
    return middle if cursor < middle < stop else None


def patience(rate: float | None) -> float:
    """Return for how many seconds a cursor may stand still before a second worker is set on the same task."""
    return max(PATIENCE, PATIENCE_TASKS / rate) if rate else PATIENCE
