"""Any-time evidence that a mean is above one number, by betting: the error rate holds at whatever pair one stops.

The side bets against the null mean that it would refute. At each pair its capital is multiplied by
1 + f (y - m) / (1 + m), where y is the difference divided by its bound, m the null mean on the same scale, and f the
fraction of the capital at stake. Under the null the capital is a non-negative supermartingale that begins at 1, so the
probability that it ever reaches 2 / error rate is half the error rate at most (Ville 1939); two sides make the whole.
The capital is the mean of four capitals with constant fractions, "diversified Kelly betting" of Waudby-Smith and
Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 86, 2024. Constant fractions need no estimate
of a variance, lose at most a factor of 4 against the best of them, and decided earlier than the paper's plug-in bets
(`benchmarks/deciding.py`). Without replacement, the null mean is updated before each draw (section 5 there).
"""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Fractions of the capital that are bet. The largest is for metrics that vary little; 1 would be ruined by one pair.
FRACTIONS = (0.06, 0.16, 0.4, 0.95)
#: Sums of differences, of a scale from -1 to 1, that are this close (per pair) are equal: rounding, not evidence.
ROUNDING = 1e-12
#: Halvings of the search for a bound.
HALVINGS = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class OneSidedBets:
    """Evidence after ``count`` pairs that the mean is above ``null``, a share of the bound.

    ``pairs``: length of the list whose mean is meant, None for a population. ``log_capital``: by fraction. ``peak``:
    the most that the logarithm of the capital has been. ``shown_at``: the pairs after which it first reached
    ``threshold``, or after which no doubt was left; None if neither has happened.
    """

    null: float
    threshold: float
    pairs: int | None = None
    count: int = 0
    total: float = 0.0
    log_capital: tuple[float, ...] = (0.0,) * len(FRACTIONS)
    peak: float = 0.0
    shown_at: int | None = None

    def extend(self, shares: Floats) -> Self:
        """Return the evidence after further differences, shape (n,), shares of the bound from -1 to 1."""
        if not len(shares):
            return self
        totals = np.cumsum(np.concatenate(([self.total], shares)))
        nulls = np.full(len(shares), self.null)
        if self.pairs is not None:
            left = self.pairs - self.count - np.arange(len(shares))
            nulls = (self.pairs * self.null - totals[:-1]) / left
        steps = log_steps(shares, nulls)
        course = np.cumsum(np.concatenate((np.array(self.log_capital)[None], steps)), axis=0)[1:]
        mixed = log_mean(course)
        reached = mixed >= self.threshold
        if self.pairs is not None:  # certain whatever the pairs that are left
            reached |= totals[1:] - (left - 1) > self.pairs * self.null + ROUNDING * self.pairs
        shown_at = self.shown_at
        if shown_at is None and reached.any():
            shown_at = self.count + int(reached.argmax()) + 1
        return replace(
            self,
            count=self.count + len(shares),
            total=float(totals[-1]),
            log_capital=tuple(course[-1].tolist()),
            peak=max(self.peak, float(mixed.max())),
            shown_at=shown_at,
        )

    @property
    def log_evidence(self) -> float:
        """Return the logarithm of the e-value now; infinite if a list leaves no doubt."""
        if self.pairs is not None:
            left = self.pairs - self.count
            if self.total - left > self.pairs * self.null + ROUNDING * self.pairs:
                return math.inf
            if self.total + left <= self.pairs * self.null:
                return -math.inf
        return float(log_mean(np.array(self.log_capital)))


def standing_bound(values: Floats, counts: Floats, threshold: float) -> float:
    """Return the largest mean that a whole sample refutes: the evidence against each smaller one has the threshold.

    The evidence does not depend on the order of the differences, so that it may be looked at again and again while
    results arrive. ``values``: shares of the bound; ``counts``: how often each occurs; shapes (n,). -1 for none.
    """
    refuted, kept = -1.0, 1.0
    for _ in range(HALVINGS):
        middle = (refuted + kept) / 2
        steps = log_steps(values, np.full(len(values), middle))
        if len(values) and float(log_mean(counts @ steps)) >= threshold:
            refuted = middle
        else:
            kept = middle
    return refuted


def log_steps(shares: Floats, nulls: Floats) -> Floats:
    """Return by how much each pair changes the logarithm of the capitals, by fraction in the last axis.

    ``shares``: differences as shares of the bound. ``nulls``: means to refute, of a shape that broadcasts with them.
    """
    room = 1.0 + nulls
    # no bet where the null leaves the rest no other value than the least, or not even that one
    gains = np.where(room > 1e-9, (shares - nulls) / np.maximum(room, 1e-9), 0.0)
    steps: Floats = np.log1p(gains[..., None] * np.array(FRACTIONS))
    return steps


def log_mean(logarithms: Floats) -> Floats:
    """Return the logarithm of the mean over the last axis of values that are themselves logarithms."""
    most = logarithms.max(axis=-1, keepdims=True)
    result: Floats = most[..., 0] + np.log(np.exp(logarithms - most).mean(axis=-1))
    return result
