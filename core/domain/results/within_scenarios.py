"""Effects of a swept parameter: differences within a scenario, which is its own control.

Each scenario is played with each value of the parameter. What differs between scenarios, which is most of what differs
at all, is the same on both sides and says nothing; so values are compared inside a scenario only, and scenarios are the
units of the intervals. A scenario counts when each value of the parameter has a result.

- Numbers and failure: share of the pairs of a failed and a passed task of one scenario in which the failed one has the
  larger value, less that in which it has the smaller.
- A level and failure: mean over scenarios of the failed share there less that elsewhere.
- Numbers and a metric: mean over scenarios of Spearman's correlation.
- Levels and a metric: share of the variance within scenarios (epsilon squared), with a seeded bootstrap over scenarios.
"""

import math

import numpy as np
from numpy.typing import NDArray

from core.domain.results.bounded_mean import lower_bound
from core.domain.results.effect_sizes import RESAMPLES, Effect
from core.domain.results.intervals import mean_interval
from core.domain.results.scenario_intervals import UnitValues

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

#: Most numbers that a block of the bootstrap has.
BLOCK = 1_000_000


class LevelTable:
    """Sums and numbers of values by scenario and level, of the scenarios that have all levels; shapes (n, levels)."""

    def __init__(self, units: Codes, codes: Codes, values: Floats, levels: int) -> None:
        """``units``, ``codes``, ``values``: of tasks, shape (n,): scenario, level from 0, value."""
        scenarios, positions = np.unique(units, return_inverse=True)
        shape = len(scenarios), levels
        cells = positions * levels + codes
        counts = np.bincount(cells, minlength=shape[0] * levels).reshape(shape)
        sums = np.bincount(cells, values, shape[0] * levels).reshape(shape)
        complete = (counts > 0).all(axis=1)
        self.counts: Floats = counts[complete].astype(np.float64)
        self.sums: Floats = sums[complete].astype(np.float64)

    def __len__(self) -> int:
        return len(self.sums)

    @property
    def means(self) -> Floats:
        """Mean of each cell."""
        return self.sums / self.counts


def larger_fails(table: LevelTable) -> Effect | None:
    """Return how much more often the failed task of a pair has the larger value, from -1 to 1; None without a pair.

    ``table``: of failures (1 or 0), its levels ascending.
    """
    failures, passes = table.sums, table.counts - table.sums
    below = np.cumsum(passes, axis=1) - passes / 2
    concordant = (failures * below).sum(axis=1)
    pairs = failures.sum(axis=1) * passes.sum(axis=1)
    used = pairs > 0
    if not used.any():
        return None
    shares = UnitValues(concordant[used], pairs[used])
    low, high = shares.interval(rate=True, bounds=None)
    return Effect(value=2 * shares.mean - 1, low=2 * low - 1, high=2 * high - 1)


def largest_difference(table: LevelTable) -> tuple[int, Effect] | None:
    """Return the level whose failed share differs most from that elsewhere, with an interval that holds for all levels.

    ``table``: of failures (1 or 0). None without scenarios.
    """
    levels = table.sums.shape[1]
    if not len(table):
        return None
    elsewhere = (table.sums.sum(axis=1, keepdims=True) - table.sums) / (
        table.counts.sum(axis=1, keepdims=True) - table.counts
    )
    differences = table.means - elsewhere
    means = differences.mean(axis=0)
    level = int(np.argmax(np.abs(means)))
    share = 0.05 / candidates(levels) / 2
    values, counts = np.unique(differences[:, level], return_counts=True)
    weights = counts.astype(np.float64)
    value = float(means[level])
    low, high = lower_bound(values, -1.0, share, weights), -lower_bound(-values, -1.0, share, weights)
    return level, Effect(value=value, low=min(low, value), high=max(high, value))


def candidates(levels: int) -> int:
    """Return of how many differences the largest is chosen: of two levels, both are the same but for the sign."""
    return 1 if levels == 2 else levels


def mean_correlation(table: LevelTable) -> Effect | None:
    """Return the mean correlation of a number with a metric within scenarios; None without scenarios.

    ``table``: its levels ascending. A scenario with equal values of the metric has the correlation 0.
    """
    if not len(table):
        return None
    ranks = _ranks(table.means)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    order = np.arange(centred.shape[1]) - (centred.shape[1] - 1) / 2
    scale = np.sqrt((centred**2).sum(axis=1) * float(order @ order))
    correlations = np.clip(centred @ order / np.where(scale > 0, scale, 1.0), -1.0, 1.0)
    low, high = mean_interval(correlations, (-1.0, 1.0))
    return Effect(value=float(correlations.mean()), low=max(-1.0, low), high=min(1.0, high))


def _ranks(rows: Floats) -> Floats:
    """Return the ranks in each row, the mean rank for ties; shape (n, k), in k steps that need no more memory."""
    ranks = np.full(rows.shape, 0.5)
    for column in range(rows.shape[1]):
        other = rows[:, column : column + 1]
        ranks += (other < rows) + (other == rows) / 2
    return ranks


def explained_share(table: LevelTable) -> float:
    """Return the share of the variance within scenarios that levels explain, less what chance explains; 0 to 1."""
    centred = table.means - table.means.mean(axis=1, keepdims=True)
    scenarios = float(len(centred))
    adjusted = _adjusted(centred.sum(axis=0), np.array((centred**2).sum()), scenarios)
    return max(0.0, min(1.0, float(adjusted)))


def _adjusted(sums: Floats, totals: Floats, scenarios: float) -> Floats:
    """Return the share, of which chance may make less than 0. Shapes: (..., levels), and (...) for sums of squares."""
    between = (sums**2).sum(axis=-1) / max(1.0, scenarios)
    share = between / np.where(totals > 0, totals, 1.0)
    adjusted = 1 - (1 - share) * scenarios / max(1.0, scenarios - 1)
    result: Floats = np.where((totals > 0) & (scenarios > 1), adjusted, 0.0)
    return result


def explained_share_effect(table: LevelTable) -> Effect | None:
    """Return `explained_share` with its interval, as `epsilon_squared_effect` has it; None without scenarios."""
    n = len(table)
    if not n:
        return None
    value = explained_share(table)
    centred = table.means - table.means.mean(axis=1, keepdims=True)
    squares = (centred**2).sum(axis=1)
    generator = np.random.Generator(np.random.PCG64(0))
    parts = []
    rows = max(1, BLOCK // n)
    for at in range(0, RESAMPLES, rows):
        draws = generator.multinomial(n, np.full(n, 1 / n), min(rows, RESAMPLES - at)).astype(np.float64)
        parts.append(_adjusted(draws @ centred, draws @ squares, float(n)))
    resampled = np.concatenate(parts)
    low, high = np.quantile(resampled, (0.025, 0.975)) - resampled.mean()
    return Effect(value=value, low=max(0.0, value + float(low)), high=min(1.0, value + float(high)))


def association(table: LevelTable) -> float:
    """Return the strength of the association, from 0 to 1: the root of `explained_share`."""
    return math.sqrt(explained_share(table)) if len(table) else 0.0
