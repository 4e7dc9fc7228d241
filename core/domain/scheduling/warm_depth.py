"""Depth of the warm runners: how many of each kind to keep, from recent demand, their memory and limits; no I/O.

One runner is kept of each of the kinds used last. A rush adds as many as arrive while a runner starts, or as were in
use at once; what it adds halves with time, so that the memory is given back when the rush has passed.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

#: Seconds in which the memory of past demand halves.
HALF_LIFE = 5.0
#: Runners kept for each that is expected to be taken while one starts: arrivals are not evenly spaced.
MARGIN = 2.0
#: The most runners of a kind.
DEEPEST = 16

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """Demand for a kind as of ``at``: launches that arrived, and the most that were in use at once, both decayed."""

    arrivals: float = 0.0
    at_once: float = 0.0
    at: float = 0.0

    def as_of(self, now: float) -> "Demand":
        """Return what is left of it at a later time; a clock that was set back changes nothing."""
        elapsed = max(0.0, now - self.at)
        left = 2.0 ** (-elapsed / HALF_LIFE)
        return Demand(arrivals=self.arrivals * left, at_once=self.at_once * left, at=max(now, self.at))

    def with_arrival(self, now: float, in_use: int) -> "Demand":
        """Return it with one more launch, with which ``in_use`` launches of the kind are at work."""
        past = self.as_of(now)
        return Demand(arrivals=past.arrivals + 1.0, at_once=max(past.at_once, float(in_use)), at=past.at)

    @property
    def rate(self) -> float:
        """Arrivals per second, as an average over the last half-lives."""
        return self.arrivals * math.log(2.0) / HALF_LIFE


@dataclass(frozen=True, kw_only=True, slots=True)
class KindState(Generic[K]):
    """A kind, its demand as of now, its warm runners (ready or starting), and what one of them costs.

    ``memory`` in bytes; ``start``: seconds until a new one is ready.
    """

    kind: K
    demand: Demand
    warm: int
    memory: int
    start: float


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmLimits:
    """``kinds`` that are kept; ``memory``: the most bytes of all warm runners.

    ``spare``: bytes of the machine that they may use besides; negative: so many are lacking. ``stalled``: processes
    wait for memory, so that nothing is started and all but one runner of each kind are ended.
    """

    kinds: int
    memory: int
    spare: int
    stalled: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes(Generic[K]):
    """Warm runners to start, and to end, each as the kind; a kind is never in both."""

    start: tuple[K, ...] = ()
    end: tuple[K, ...] = ()


def wanted(demand: Demand, start: float) -> int:
    """Return how many warm runners of a kept kind its demand asks for, at least one, whatever the memory."""
    arriving = demand.rate * start * MARGIN
    rush = max(arriving, demand.at_once - 1.0 if demand.arrivals > 1.5 else 0.0)
    return min(DEEPEST, 1 + math.floor(rush + 0.5))


def depths(kinds: Sequence[KindState[K]], limits: WarmLimits) -> dict[K, int]:
    """Return how many warm runners to keep of each kind; ``kinds``: those used last first.

    First one of each kept kind, then in turns one more for each that wants more, as far as the memory goes.
    """
    used = sum(state.warm * state.memory for state in kinds)
    left = min(limits.memory, used + limits.spare)
    kept = kinds[: limits.kinds]
    most = {state.kind: 1 if limits.stalled else wanted(state.demand, state.start) for state in kept}
    result = dict.fromkeys((state.kind for state in kinds), 0)
    for depth in range(1, DEEPEST + 1):
        for state in kept:
            if most[state.kind] >= depth and result[state.kind] == depth - 1 and state.memory <= left:
                left -= state.memory
                result[state.kind] = depth
    return result


def changes(kinds: Sequence[KindState[K]], limits: WarmLimits) -> Changes[K]:
    """Return which warm runners to start and to end; ``kinds``: those used last first."""
    keep = depths(kinds, limits)
    start: list[K] = []
    end: list[K] = []
    for state in kinds:
        missing = keep[state.kind] - state.warm
        if missing > 0 and not limits.stalled:
            start += [state.kind] * missing
        elif missing < 0:
            end += [state.kind] * -missing
    return Changes(start=tuple(start), end=tuple(end))
