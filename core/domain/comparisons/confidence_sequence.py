"""Confidence sequence of the mean of paired differences: an interval that holds at all pairs together.

It is the set of means that bets of neither side have refuted ("hedged capital" of Waudby-Smith and Ramdas,
"Estimating means of bounded random variables by betting", JRSS-B 86, 2024; the bets are in
`one_sided_bets.py`), so that tests by bets and interval cannot disagree, as an empirical-Bernstein interval
beside a betting test could. A side's capital decreases as its null mean grows; the set is therefore an interval, and is
computed on a grid of means, rounded outwards. Without replacement, the null mean is updated before each draw (section 5
there).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from core.domain.comparisons.one_sided_bets import FRACTIONS, ROUNDING, Floats, log_mean, log_steps

#: Signs of a difference for the sides of better and worse, shape (2 sides, means).
_SIDES = np.array([[1.0], [-1.0]])
#: Pairs whose capital is computed at once: few calls, and 2 MiB of memory.
BLOCK = 256


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
class ConfidenceSequence:
    """State after ``count`` pairs; its size and the cost of a further pair do not depend on ``count``.

    ``total`` and ``squares``: sums of the differences and of their squares, as shares of the bound. ``low`` and
    ``high``: bounds of the interval, as shares of the bound. ``log_capital``: by side (better, worse), mean of the grid
    and fraction, in this order. ``fractions``: of the bets.
    """

    plan: Plan
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    low: float = -1.0
    high: float = 1.0
    log_capital: tuple[float, ...] = ()
    fractions: tuple[float, ...] = FRACTIONS

    def __post_init__(self) -> None:
        if self.fractions != FRACTIONS:
            raise ValueError("The state was computed with other bets; replay the differences from the first pair.")

    def extend(self, differences: Sequence[float] | Floats) -> Self:
        """Return the state after further differences, in the order of play and in the metric's unit.

        Batches of any sizes give the numbers of the same differences one at a time. Raise ValueError for a difference
        that is not finite or beyond the bound (`metric_scale.py` makes differences that are neither), and
        beyond the list's end.
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
        steps = log_steps(shares[:, None, None] * _SIDES, nulls)
        log_capital = np.array(self.log_capital or [0.0] * (2 * len(means) * len(FRACTIONS))).reshape(steps.shape[1:])
        log_capital = np.cumsum(np.concatenate((log_capital[None], steps)), axis=0)[1:]
        mixed = log_mean(log_capital)
        refuted = np.where((mixed >= plan.log_threshold).any(axis=0), means, -1.0)
        better_than, worse_than = refuted.max(axis=1).tolist()
        state = replace(
            self,
            count=self.count + len(shares),
            total=float(totals[-1]),
            squares=float(squares[-1]),
            log_capital=tuple(log_capital[-1].ravel().tolist()),
            low=max(self.low, better_than),
            high=min(self.high, -worse_than),
        )
        return state if plan.pairs is None else state._within_list(totals[1:], played + 1)

    def _within_list(self, totals: Floats, played: NDArray[np.int64]) -> Self:
        """Return the state with the bounds that hold whatever the differences of the pairs that are left."""
        assert self.plan.pairs is not None
        left = self.plan.pairs - played
        low = float(((totals - left) / self.plan.pairs).max())
        high = float(((totals + left) / self.plan.pairs).min())
        return replace(self, low=max(self.low, low), high=min(self.high, high))

    @property
    def complete(self) -> bool:
        """Return whether the whole list was played, so that its mean is known."""
        return self.count == self.plan.pairs

    @property
    def sign(self) -> int:
        """Return the sign of the mean difference so far; 0 if it differs from 0 by no more than rounding."""
        return 0 if abs(self.total) <= ROUNDING * max(self.count, 1) else int(math.copysign(1, self.total))

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
