"""Intervals of 95 % whose unit is the scenario, for means and rates over tasks of which several belong to one.

The mean is that over the tasks, a ratio of two sums over scenarios, so that a scenario of which some tasks have no
value counts with those that it has. Its variance is that of the ratio (the sandwich estimator with scenarios as
clusters; Liang and Zeger, Biometrika 73, 1986): with equal numbers of tasks it is the variance of the scenarios' means
divided by their number. Scenario means alone would change the mean itself where tasks are missing.

A rate has Wilson's interval with an effective number of tasks (Korn and Graubard, Survey Methodology 24, 1998): so many
independent ones would have its variance, not fewer than the scenarios and not more than the tasks; and Student's
quantile, as the variance is that of few scenarios. Below FEW scenarios neither holds: there a metric with a declared
range, such as a rate, has the interval of `bounded_mean.py` for the scenarios' means.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.domain.results import student_t
from core.domain.results.bounded_mean import bounded_interval, lower_bound
from core.domain.results.intervals import FEW, NORMAL, Bounds, has_range, student_quantile, wilson, within

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

#: Fewest units that scenarios are joined to: a power of two, and not below FEW.
FEWEST = 32
#: The ends of every rate.
RATE: Bounds = (0.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class UnitValues:
    """The values of each unit: their sum and their number, which is above 0; shapes (n,).

    ``scenarios``: number of scenarios in a unit: 1, or more where scenarios are joined to bound the memory.
    """

    sums: Floats
    counts: Floats
    scenarios: float = 1.0

    @property
    def repeated(self) -> bool:
        """Whether a unit has several values."""
        return bool((self.counts > 1).any())

    @property
    def mean(self) -> float:
        """The mean over the values."""
        return float(self.sums.sum() / self.counts.sum())

    @property
    def variance(self) -> float:
        """The variance of the mean; NaN for fewer than two units."""
        n = len(self.sums)
        if n < 2:
            return math.nan
        residuals = self.sums - self.counts * self.mean
        return n / (n - 1) * float(residuals @ residuals) / float(self.counts.sum()) ** 2

    @property
    def balanced_scenarios(self) -> float:
        """The number of scenarios, fewer where their numbers of values differ (Kish 1965)."""
        return self.scenarios * float(self.counts.sum()) ** 2 / float(self.counts @ self.counts)

    def interval(self, *, rate: bool, bounds: Bounds | None) -> tuple[float, float]:
        """Return the interval of the mean; NaN for a mean of a single unit, unless it is a rate.

        ``bounds``: the range that the metric declares; None if it has no ends. A rate of one value a unit has Wilson's.
        """
        if rate and not self.repeated:
            return wilson(float(self.sums.sum()), float(self.counts.sum()))
        with np.errstate(over="ignore", invalid="ignore"):  # of values near the largest float
            return self._interval(rate, RATE if rate else bounds)

    def _interval(self, rate: bool, limits: Bounds | None) -> tuple[float, float]:
        mean, n = self.mean, len(self.sums)
        means = self.sums / self.counts
        least, most = float(means.min()), float(means.max())
        few = n < FEW or (least == most and not rate)
        if few and (rate or n > 1) and has_range(limits) and limits[0] <= least and most <= limits[1]:
            low, high = bounded_interval(means, *limits)
            return min(low, mean), max(high, mean)
        if n < 2:
            return math.nan, math.nan
        if rate:
            return wilson(mean * self.effective, self.effective, student_quantile(n - 1))
        half = student_quantile(n - 1) * math.sqrt(self.variance)
        return within((mean - half, mean + half), least, most, limits)

    def exact_rate_interval(self, error_rate: float) -> tuple[float, float]:
        """Return the interval of a rate that also holds far out, where Wilson's is too narrow.

        It is that of Clopper and Pearson (Biometrika 26, 1934), with an effective number of tasks.
        """
        mean, n, level = self.mean, len(self.sums), error_rate / 2
        if n < FEW:
            low, high = bounded_interval(self.sums / self.counts, *RATE, error_rate)
            return min(low, mean), max(high, mean)
        effective = float(self.counts.sum())
        if self.repeated:
            effective = self.effective * (NORMAL.inv_cdf(level) / student_t.quantile(level, n - 1)) ** 2
        values, weights = np.array([1.0, 0.0]), np.array([mean, 1 - mean]) * effective
        values, weights = values[weights > 0], weights[weights > 0]
        return lower_bound(values, 0.0, level, weights), 1 - lower_bound(1 - values, 0.0, level, weights)

    @property
    def effective(self) -> float:
        """The number of independent values of a rate whose mean has this variance."""
        mean, tasks, scenarios = self.mean, float(self.counts.sum()), self.balanced_scenarios
        spread = mean * (1 - mean)
        if spread <= 0:
            return scenarios
        variance = self.variance
        return tasks if variance <= spread / tasks else max(scenarios, spread / variance)


def values_by_unit(units: Codes, values: Floats) -> UnitValues:
    """Return the values by their units, of which each has one at least; shapes (n,)."""
    _, codes, counts = np.unique(units, return_inverse=True, return_counts=True)
    return UnitValues(np.bincount(codes, values, len(counts)).astype(np.float64), counts.astype(np.float64))


class UnitSums:
    """Sums and numbers of values by group and unit, in bounded memory.

    Beyond ``room`` cells, units are joined: the numbers that are equal modulo a power of two. Their joined sums are as
    independent as those of single scenarios, and the variance is only known less precisely.
    """

    def __init__(self, scenarios: int) -> None:
        self._scenarios = scenarios
        self._units = scenarios
        self._sums: Floats = np.zeros((0, scenarios))
        self._counts: Floats = np.zeros((0, scenarios))

    def add(self, codes: Codes, units: Codes, values: Floats, room: int) -> None:
        """Add values of groups (``codes``, from 0) and units; shapes (n,). No value is NaN."""
        if not len(codes):
            return
        groups = max(len(self._sums), int(codes.max()) + 1)
        if self._units > FEWEST and groups * self._units > room:
            self._join(1 << max(FEWEST, room // groups).bit_length() - 1)
        if groups > len(self._sums):
            self._sums, self._counts = (
                np.concatenate((array, np.zeros((groups - len(array), self._units))))
                for array in (self._sums, self._counts)
            )
        cells, positions = np.unique(codes * self._units + units % self._units, return_inverse=True)
        with np.errstate(over="ignore", invalid="ignore"):
            self._sums.reshape(-1)[cells] += np.bincount(positions, values)
        self._counts.reshape(-1)[cells] += np.bincount(positions)

    def _join(self, units: int) -> None:
        """Join units modulo ``units``, a power of two."""
        if units < self._units:
            self._sums, self._counts = (_joined(array, units) for array in (self._sums, self._counts))
            self._units = units

    def of(self, group: int, others: "UnitSums | None" = None, value: float = 0.0) -> UnitValues:
        """Return the values of a group by unit; ``others``: further ones of the same scenarios, each of ``value``."""
        units = self._units if others is None else min(self._units, others._units)
        sums, counts = (_joined(array[group : group + 1], units)[0] for array in (self._padded(group)))
        if others is not None:
            more = _joined(others._padded(group)[1][group : group + 1], units)[0]
            sums, counts = sums + value * more, counts + more
        used = counts > 0
        return UnitValues(sums[used], counts[used], max(1.0, self._scenarios / units))

    def _padded(self, group: int) -> tuple[Floats, Floats]:
        if group < len(self._sums):
            return self._sums, self._counts
        nothing = np.zeros((group + 1, self._units))
        return nothing, nothing


def _joined(array: Floats, units: int) -> Floats:
    """Return sums by unit number modulo ``units``; shape (groups, n) to (groups, units)."""
    groups, n = array.shape
    padded = np.zeros((groups, -(-n // units) * units))
    padded[:, :n] = array
    result: Floats = padded.reshape(groups, padded.shape[1] // units, units).sum(axis=1)
    return result
