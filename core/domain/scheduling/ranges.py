"""Ranges of tasks: sizes of leases, work stealing, how far a report counts. Pure; the SQL is core/store/leases.py."""

from dataclasses import dataclass

#: Seconds of work a lease is worth, by the worker's own rate; long leases are harmless because they can be stolen.
SHORTEST, LONGEST = 0.5, 30.0
#: Tasks leased to a worker whose rate is not known yet.
FIRST = 256
#: Witnessed deaths in careful mode on one task before it gets the result `crashed`.
STRIKES = 3
#: Unwitnessed expiries of one range before the platform gives up on the simulation.
EXPIRIES = 20
#: A speculative lease is given when the cursor has not moved for this many seconds, or for the time of this many tasks.
STANDSTILL, STANDSTILL_TASKS = 3.0, 4.0


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


@dataclass(frozen=True, slots=True)
class RangePosition:
    """A range's cursor (the next task to report) and its end, which work stealing may have moved."""

    cursor: int
    stop: int


@dataclass(frozen=True, slots=True)
class RangeState:
    """A range as it stands: `pending`, `leased`, `done` or `closed`, under this fencing token, at this position."""

    state: str
    fencing_token: str | None
    position: RangePosition


@dataclass(frozen=True, slots=True)
class ReportedRange:
    """The claim of a report: results of the tasks [since, to) of the range that begins at ``start``."""

    stage: str
    start: int
    fencing_token: str
    since: int
    to: int


@dataclass(frozen=True, slots=True)
class ReportDecision:
    """How far a report counts: the results of [since, ``end``), or none of them if ``end`` is None.

    ``position``: the range after the report; None if the reporter has lost the lease.
    """

    end: int | None
    position: RangePosition | None


def decide_report(current: RangeState | None, report: ReportedRange) -> ReportDecision:
    """Return how far a report counts, given the range as it stands (None: there is no such range).

    The first report of a task counts: one that does not begin at the cursor repeats an earlier one, or comes second of
    two workers on a speculative lease. Of a report beyond the range's end, only the results before the end count: the
    rest of the range was given to another worker.
    """
    if current is None or current.fencing_token != report.fencing_token or current.state not in {"leased", "done"}:
        return ReportDecision(None, None)
    position = current.position
    end = min(report.to, position.stop)
    if current.state == "done" or position.cursor != report.since or end <= report.since:
        return ReportDecision(None, position)
    return ReportDecision(end, RangePosition(end, position.stop))


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
    return max(STANDSTILL, STANDSTILL_TASKS / rate) if rate else STANDSTILL
