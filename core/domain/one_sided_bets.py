"""Any-time evidence that a mean is above one number: the capital of bets on each difference.

The bets are those of `core/domain/sequential_test.py`, of one side against one null. They are kept apart because the
numbers that they see differ: for a claim within a margin, a pair without a number counts as the worst.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from core.domain.sequential_test import FRACTIONS, Floats, log_mean, log_steps

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
        steps = log_steps(shares, nulls[:, None, None])[:, 0, 0, :]
        course = np.cumsum(np.concatenate((np.array(self.log_capital)[None], steps)), axis=0)[1:]
        mixed = log_mean(course)
        reached = mixed >= self.threshold
        if self.pairs is not None:  # certain whatever the pairs that are left
            reached |= totals[1:] - (left - 1) > self.pairs * self.null + 1e-12 * self.pairs
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
            if self.total - left > self.pairs * self.null + 1e-12 * self.pairs:
                return math.inf
            if self.total + left <= self.pairs * self.null:
                return -math.inf
        return float(log_mean(np.array(self.log_capital)))

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values; ``from_json`` gives the very same numbers."""
        return asdict(self) | {"log_capital": list(self.log_capital)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the state of ``to_json``."""
        return cls(**{**document, "log_capital": tuple(document["log_capital"])})


def standing_bound(values: Floats, counts: Floats, threshold: float) -> float:
    """Return the largest mean that a whole sample refutes: the evidence against each smaller one has the threshold.

    The evidence does not depend on the order of the differences, so that it may be looked at again and again while
    results arrive. ``values``: shares of the bound; ``counts``: how often each occurs; shapes (n,). -1 for none.
    """
    refuted, kept = -1.0, 1.0
    for _ in range(HALVINGS):
        middle = (refuted + kept) / 2
        steps = log_steps(values, np.array([[middle]]))[:, 0, 0, :]
        if len(values) and float(log_mean(counts @ steps)) >= threshold:
            refuted = middle
        else:
            kept = middle
    return refuted
