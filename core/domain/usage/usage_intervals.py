"""Usage intervals: how long resources were granted, known to the last mark, and what follows at the end. Pure.

While an interval is open the dispatcher marks it every few seconds in which an executor shows its launch. An interval
is its last mark and a length: a clock that is set moves the one and leaves the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

#: Seconds between two marks of a launch that its executor shows.
MARK_INTERVAL = 5.0
#: Seconds since the last mark up to which nothing has to be assumed: passes and calls of executors take some of them.
LATE_MARK = 10.0
#: Seconds that a launch which was gone when the platform looked again is assumed to have lasted after its last sign.
ASSUMED_SECONDS = MARK_INTERVAL


@dataclass(frozen=True, slots=True)
class OpenInterval:
    """An interval that goes on: its length until its last mark. ``marked_at`` is a time of the database's clock."""

    marked_at: float
    milliseconds: int


@dataclass(frozen=True, slots=True)
class IntervalEnd:
    """End of a launch, with all that is known of it, in seconds of the database's clock.

    ``heard_at``: when one of its runners said something last, 0 if none did. ``lost``: the platform repeats its work;
    ``result_at``: since when it brought nothing that is kept; None: it never did.
    """

    now: float
    heard_at: float = 0.0
    lost: bool = False
    result_at: float | None = None


@dataclass(frozen=True, slots=True)
class IntervalPart:
    """A part of an interval that has ended, which is estimated or not, and lost by the platform or not."""

    until: float
    milliseconds: int
    estimated: bool = False
    lost: bool = False


def parts_of(interval: OpenInterval, end: IntervalEnd) -> list[IntervalPart]:
    """Return the parts of an interval that ends, in their order; there is at least one.

    Up to the last mark, or what a runner has said since, all is known. Of what vanished, the rest is estimated, and so
    is everything that lies later than marks do: then the platform was away, and nobody saw the end.
    """
    gap = max(0.0, end.now - interval.marked_at)
    known = max(interval.marked_at, min(end.heard_at, end.now))
    result_at = end.result_at
    if gap <= LATE_MARK:
        rest = gap if end.lost else 0.0
        added = gap
    else:
        rest = min(ASSUMED_SECONDS, end.now - known)
        added = known - interval.marked_at + rest
        # A platform that was away sums up late what had arrived before: nothing came after the last sign.
        result_at = None if result_at is None else min(result_at, known)
    total = interval.milliseconds + round(added * 1000)
    certain = total - min(round(rest * 1000), total)
    begin = interval.marked_at - interval.milliseconds / 1000
    kept = total
    if end.lost:
        kept = 0 if result_at is None else min(max(round((result_at - begin) * 1000), 0), total)
    return list(_parts(begin, total, certain, kept))


def _parts(begin: float, total: int, certain: int, kept: int) -> Iterator[IntervalPart]:
    bounds = sorted({0, certain, kept, total})
    if bounds == [0]:
        yield IntervalPart(begin, 0)
    for start, stop in pairwise(bounds):
        yield IntervalPart(begin + stop / 1000, stop - start, estimated=start >= certain, lost=start >= kept)
