"""Sequential test of paired differences by betting: the error rate holds at whatever pair the comparison stops.

Each side bets against the null mean that it would refute. At each pair its capital is multiplied by
1 + f (y - m) / (1 + m), where y is the difference divided by its bound, m the null mean on the same scale, and f the
fraction of the capital at stake. Under the null the capital is a non-negative supermartingale that begins at 1, so the
probability that it ever reaches 2 / error rate is half the error rate at most (Ville 1939); two sides make the whole.
The capital is the mean of four capitals with constant fractions, "diversified Kelly betting" of Waudby-Smith and
Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 86, 2024. Constant fractions need no estimate
of a variance, lose at most a factor of 4 against the best of them, and decided earlier than the paper's plug-in bets
(`benchmarks/deciding.py`). Without replacement, the null mean is updated before each draw (section 5 there).

The confidence sequence is the set of means that neither side has refuted ("hedged capital" there), so that test and
interval cannot disagree, as an empirical-Bernstein interval beside a betting test could. A side's capital decreases as
its null mean grows; the set is therefore an interval, and is computed on a grid of means, rounded outwards.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from core.domain.claims import Decision

Floats = NDArray[np.float64]

#: Fractions of the capital that are bet. The largest is for metrics that vary little; 1 would be ruined by one pair.
FRACTIONS = (0.06, 0.16, 0.4, 0.95)
#: Signs of a difference for the sides of better and worse, shape (2 sides, means).
_SIDES = np.array([[1.0], [-1.0]])
#: Pairs whose capital is computed at once: few calls, and 2 MiB of memory.
BLOCK = 256
#: Sums of differences, of a scale from -1 to 1, that are this close (per pair) are equal: rounding, not evidence.
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Settings that are fixed before the first pair.

    ``bound``: differences lie in [-bound, bound], in the metric's unit. ``pairs``: length of the list; None for a
    population. ``error_rate``: of both sides together. ``resolution``: means of the grid on each side of 0, closer to
    each other near 0; with none the test has no interval.
    """

    bound: float
    pairs: int | None = None
    error_rate: float = 0.05
    resolution: int = 50

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise ValueError(f"The bound of the differences is a number above 0, not {self.bound}.")
        if not 0 < self.error_rate < 1:
            raise ValueError(f"The error rate is between 0 and 1, not {self.error_rate}.")
        if (self.pairs is not None and self.pairs < 1) or self.resolution < 0:
            raise ValueError("A list has at least one pair, and the resolution is not negative.")

    @property
    def log_threshold(self) -> float:
        """Return the logarithm of the capital at which a side has refuted a mean."""
        return math.log(2 / self.error_rate)

    def means(self) -> Floats:
        """Return the grid of means, ascending, as shares of the bound: squares, so that it is finest around 0."""
        steps = np.arange(-self.resolution, self.resolution + 1) / (self.resolution + 1)
        grid: Floats = np.copysign(steps * steps, steps) + 0.0
        return grid


@dataclass(frozen=True, kw_only=True, slots=True)
class SequentialTest:
    """State after ``count`` pairs; its size and the cost of a further pair do not depend on ``count``.

    ``total`` and ``squares``: sums of the differences and of their squares, as shares of the bound. ``log_capital``:
    by side (better, worse), mean of the grid and fraction, in this order. ``peaks``: for each side, the most that the
    logarithm of its capital against a mean difference of 0 has been. ``low`` and ``high``: bounds of the interval, as
    shares of the bound.
    """

    plan: Plan
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    log_capital: tuple[float, ...] = ()
    peaks: tuple[float, float] = (0.0, 0.0)
    low: float = -1.0
    high: float = 1.0
    decided: Decision = Decision.UNDECIDED
    decided_at: int | None = None

    def extend(self, differences: Sequence[float] | Floats) -> Self:
        """Return the state after further differences, in the order of play and in the metric's unit.

        Batches of any sizes give the numbers of the same differences one at a time. After a decision the evidence and
        the interval go on; ``decided`` and ``decided_at`` stay. Raise ValueError for a difference that is not finite or
        beyond the bound (`core/domain/metric_scale.py` makes differences that are neither), and beyond the list's end.
        """
        shares = np.asarray(differences, np.float64) / self.plan.bound
        if not (np.abs(shares) <= 1 + ROUNDING).all():
            raise ValueError(f"A difference is not a number between -{self.plan.bound:g} and {self.plan.bound:g}.")
        if self.plan.pairs is not None and self.count + len(shares) > self.plan.pairs:
            raise ValueError(f"The list has {self.plan.pairs} pairs; {self.count + len(shares)} were played.")
        state = self
        for start in range(0, len(shares), BLOCK):
            state = state._extended(np.clip(shares[start : start + BLOCK], -1.0, 1.0))
        return state

    def _extended(self, shares: Floats) -> Self:
        plan, means = self.plan, self.plan.means()
        # cumsum adds one at a time, in contrast to sum: equal bits whatever the batches
        totals = np.cumsum(np.concatenate(([self.total], shares)))
        squares = np.cumsum(np.concatenate(([self.squares], shares * shares)))
        played = self.count + np.arange(len(shares))
        nulls = means
        if plan.pairs is not None:  # the mean of the pairs that are left, if that of the list is the null's
            before = totals[:-1, None, None] * _SIDES
            nulls = (plan.pairs * means - before) / (plan.pairs - played)[:, None, None]
        steps = log_steps(shares, nulls)
        log_capital = np.array(self.log_capital or [0.0] * (2 * len(means) * len(FRACTIONS))).reshape(steps.shape[1:])
        log_capital = np.cumsum(np.concatenate((log_capital[None], steps)), axis=0)[1:]
        mixed = log_mean(log_capital)
        at_zero = mixed[..., plan.resolution]
        refuted = np.where((mixed >= plan.log_threshold).any(axis=0), means, -1.0)
        better_than, worse_than = refuted.max(axis=1).tolist()
        state = replace(
            self,
            count=self.count + len(shares),
            total=float(totals[-1]),
            squares=float(squares[-1]),
            log_capital=tuple(log_capital[-1].ravel().tolist()),
            peaks=tuple(np.maximum(self.peaks, at_zero.max(axis=0)).tolist()),
            low=max(self.low, better_than),
            high=min(self.high, -worse_than),
        )
        if plan.pairs is not None:
            state = state._within_list(totals[1:], played + 1)
        return state if self.decided_at is not None else state._decided(at_zero, totals[1:], played + 1)

    def _within_list(self, totals: Floats, played: NDArray[np.int64]) -> Self:
        """Return the state with the bounds that hold whatever the differences of the pairs that are left."""
        assert self.plan.pairs is not None
        left = self.plan.pairs - played
        low = float(((totals - left) / self.plan.pairs).max())
        high = float(((totals + left) / self.plan.pairs).min())
        return replace(self, low=max(self.low, low), high=min(self.high, high))

    def _decided(self, at_zero: Floats, totals: Floats, played: NDArray[np.int64]) -> Self:
        """Return the state with the first decision, if one of these pairs brought it."""
        sides = at_zero >= self.plan.log_threshold
        if self.plan.pairs is not None:
            surplus = totals[:, None] * np.array([1.0, -1.0]) - (self.plan.pairs - played)[:, None]
            sides |= surplus > ROUNDING * self.plan.pairs
        if not sides.any():
            return self
        first = int(sides.any(axis=1).argmax())
        decided = Decision.BETTER if sides[first, 0] else Decision.WORSE
        return replace(self, decided=decided, decided_at=int(played[first]))

    @property
    def complete(self) -> bool:
        """Return whether the whole list was played, so that its mean is known."""
        return self.count == self.plan.pairs

    @property
    def sign(self) -> int:
        """Return the sign of the mean difference so far; 0 if it differs from 0 by no more than rounding."""
        return 0 if abs(self.total) <= ROUNDING * max(self.count, 1) else int(math.copysign(1, self.total))

    @property
    def decision(self) -> Decision:
        """Return the decision: the first that the evidence brought, or the sign of the mean of a complete list.

        The end of a list contradicts an earlier decision with a probability of the error rate at most, and is right.
        """
        if not self.complete:
            return self.decided
        return (Decision.UNDECIDED, Decision.BETTER, Decision.WORSE)[self.sign]

    @property
    def log_evidence(self) -> tuple[float, float]:
        """Return the logarithm of the e-value, now, for better and for worse: infinite if the list leaves no doubt."""
        at = self.plan.resolution
        capital = np.array(self.log_capital or [0.0] * (2 * (2 * at + 1) * len(FRACTIONS)))
        better, worse = log_mean(capital.reshape(2, 2 * at + 1, len(FRACTIONS))[:, at]).tolist()
        left = math.inf if self.plan.pairs is None else self.plan.pairs - self.count + ROUNDING * self.plan.pairs
        if self.total > left:
            return math.inf, -math.inf
        return (-math.inf, math.inf) if -self.total > left else (better, worse)

    @property
    def p_values(self) -> tuple[float, float]:
        """Return the anytime-valid one-sided p-values, for better and for worse: 1 / the most capital so far."""
        certain = [math.isinf(value) and value > 0 for value in self.log_evidence]
        better, worse = (0.0 if sure else math.exp(-peak) for sure, peak in zip(certain, self.peaks, strict=True))
        return better, worse

    @property
    def mean(self) -> float:
        """Return the mean difference so far, in the metric's unit; 0 without pairs."""
        return self.plan.bound * self.total / self.count if self.count else 0.0

    @property
    def std(self) -> float:
        """Return the standard deviation (n - 1) of the differences so far, in the metric's unit; 0 below two pairs."""
        if self.count < 2:
            return 0.0
        deviations = max(0.0, self.squares - self.total * self.total / self.count)
        return self.plan.bound * math.sqrt(deviations / (self.count - 1))

    @property
    def interval(self) -> tuple[float, float]:
        """Return the confidence sequence of the mean difference, intersected over time, in the metric's unit.

        It holds at all times together with 1 - error rate. With a probability of the error rate at most its bounds
        cross; they are then returned in order.
        """
        if self.complete:
            return self.mean, self.mean
        low, high = sorted((self.plan.bound * self.low, self.plan.bound * self.high))
        return low, high

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values; ``from_json`` gives the very same numbers."""
        plan = {name: getattr(self.plan, name) for name in ("bound", "pairs", "error_rate", "resolution")}
        state = {name: getattr(self, name) for name in ("count", "total", "squares", "low", "high", "decided_at")}
        lists = {"log_capital": list(self.log_capital), "peaks": list(self.peaks)}
        return {"plan": plan, **state, **lists, "decided": self.decided.value, "fractions": list(FRACTIONS)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the state of ``to_json``; raise ValueError if it was computed with other fractions."""
        if tuple(document["fractions"]) != FRACTIONS:
            raise ValueError("The state was computed with other bets; replay the differences from the first pair.")
        better, worse = document["peaks"]
        return cls(
            plan=Plan(**document["plan"]),
            log_capital=tuple(document["log_capital"]),
            peaks=(better, worse),
            decided=Decision(document["decided"]),
            **{name: document[name] for name in ("count", "total", "squares", "low", "high", "decided_at")},
        )


def log_steps(shares: Floats, nulls: Floats) -> Floats:
    """Return by how much each pair changes the logarithm of the capitals, shape (pairs, 2 sides, means, fractions).

    ``shares``: differences as shares of the bound, shape (n,). ``nulls``: means to refute, shape (means,), or more
    dimensions if they differ between pairs or sides.
    """
    room = 1.0 + nulls
    # no bet where the null leaves the rest no other value than the least, or not even that one
    gains = np.where(room > 1e-9, (shares[:, None, None] * _SIDES - nulls) / np.maximum(room, 1e-9), 0.0)
    steps: Floats = np.log1p(gains[..., None] * np.array(FRACTIONS))
    return steps


def log_mean(logarithms: Floats) -> Floats:
    """Return the logarithm of the mean over the last axis of values that are themselves logarithms."""
    most = logarithms.max(axis=-1, keepdims=True)
    result: Floats = most[..., 0] + np.log(np.exp(logarithms - most).mean(axis=-1))
    return result
