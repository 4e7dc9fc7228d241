"""Sequential test of a whole sample at once: the interval is found by halving, not by following each mean of the grid.

A side's capital decreases as its null mean grows, so the means that it has refuted at some pair are the first of the
grid. The last of them is found in the logarithm of the size of the grid. The state cannot be continued: of the capitals
only those against a mean of 0 are known.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from core.domain.sequential_test import FRACTIONS, Floats, Plan, SequentialTest, log_mean, log_steps

#: Pairs whose capital is computed at once: arrays of half a mebibyte.
BLOCK = 8192


def sample_test(plan: Plan, differences: Sequence[float] | Floats) -> SequentialTest:
    """Return the test of a random sample: decision, evidence and interval are those of `SequentialTest.extend`.

    Raise ValueError as that does.
    """
    assert plan.pairs is None, "a list is played in batches, which continue its state"
    at_zero = SequentialTest(plan=replace(plan, resolution=0)).extend(differences)
    shares = np.clip(np.asarray(differences, np.float64) / plan.bound, -1.0, 1.0)
    grid = plan.means()
    better_than, worse_than = (float(grid[last]) if last >= 0 else -1.0 for last in _last_refuted(plan, grid, shares))
    return replace(at_zero, low=max(at_zero.low, better_than), high=min(at_zero.high, -worse_than))


def _last_refuted(plan: Plan, grid: Floats, shares: Floats) -> list[int]:
    """Return, for the side of better and that of worse, the position of the last mean that it has refuted; -1: none."""
    refuted, first_kept = np.full(2, -1), np.full(2, len(grid))
    while (first_kept - refuted > 1).any():
        middle = (refuted + first_kept) // 2
        is_refuted = _is_refuted(plan, grid[np.maximum(middle, 0)], shares)
        open = first_kept - refuted > 1
        refuted = np.where(open & is_refuted, middle, refuted)
        first_kept = np.where(open & ~is_refuted, middle, first_kept)
    last: list[int] = refuted.tolist()
    return last


def _is_refuted(plan: Plan, nulls: Floats, shares: Floats) -> NDArray[np.bool_]:
    """Return for each side whether its capital against its null mean, shape (2,), ever reaches the threshold."""
    log_capital = np.zeros((2, len(FRACTIONS)))
    reached = np.zeros(2, np.bool_)
    for start in range(0, len(shares), BLOCK):
        steps = log_steps(shares[start : start + BLOCK], nulls[:, None])[:, :, 0]
        course = np.cumsum(np.concatenate((log_capital[None], steps)), axis=0)[1:]
        reached |= (log_mean(course) >= plan.log_threshold).any(axis=0)
        log_capital = course[-1]
    return reached
