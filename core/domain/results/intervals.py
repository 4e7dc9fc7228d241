"""Confidence intervals of 95 %: Wilson for rates; bootstrap, normal approximation, or bounds of few values for means.

Wilson: J. Am. Stat. Assoc. 22, 1927. Bootstrap: Efron 1979; its random numbers are seeded, so equal results give equal
bytes. Of fewer than FEW values the bootstrap is too narrow: of 12 of which most are 100 and the rest 0, it covers the
mean in 60 %. They have the interval that knows the range of the metric (`bounded_mean.py`), and without a
declared range Student's, which is as wrong for such values, and right for those that are not.
"""

import math
from functools import cache
from statistics import NormalDist
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from core.domain.results import student_t
from core.domain.results.bounded_mean import bounded_interval, weighted_interval

#: Fewest values, or scenarios, whose mean has the bootstrap's or the normal interval.
FEW = 30
#: Resamples of the bootstrap, and the maximum of values for it; beyond it the normal approximation is as good.
RESAMPLES, BOOTSTRAPPED = 1000, 20_000
#: Values that are resampled at once: few calls for few values, and little memory for many.
BLOCK = 20_000
Z = 1.959963984540054
NORMAL = NormalDist()
#: The least and the largest value that a metric can have, as its dataset declares; infinite for one that it does not.
Bounds = tuple[float, float]


@cache
def student_quantile(degrees: int) -> float:
    """Return the quantile of Student's distribution that Z is of the normal one; ``degrees``: of freedom."""
    return student_t.quantile(0.025, degrees)


def wilson(hits: float, trials: float, quantile: float = Z) -> tuple[float, float]:
    """Return the interval of a rate: 0 of 288 still means up to 1.3 %. It includes the rate, also in floating point.

    ``trials``: a fraction where they are not independent. ``quantile``: another one for another error rate.
    """
    if trials == 0:
        return 0.0, 1.0
    share, z2 = hits / trials, quantile * quantile
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = quantile / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials))
    low = 0.0 if hits == 0 else min(share, max(0.0, middle - half))
    high = 1.0 if hits == trials else max(share, min(1.0, middle + half))
    return low, high


def normal_interval(count: int, mean: float, m2: float) -> tuple[float, float]:
    """Return the interval of a mean by the normal approximation; ``m2`` is the sum of squared deviations.

    A single value has no interval: both ends are NaN.
    """
    if count < 2:
        return math.nan, math.nan
    half = Z * math.sqrt(m2 / (count - 1) / count)
    return mean - half, mean + half


def within(interval: tuple[float, float], least: float, most: float, bounds: Bounds | None) -> tuple[float, float]:
    """Return the interval of a mean without what the metric cannot be; ``least`` and ``most``: of its values.

    A declared end that a value contradicts does not count.
    """
    low, high = interval
    if bounds is None or math.isnan(low):
        return interval
    return max(low, bounds[0]) if least >= bounds[0] else low, min(high, bounds[1]) if most <= bounds[1] else high


def has_range(bounds: Bounds | None) -> TypeGuard[Bounds]:
    """Return whether a metric declares both ends."""
    return bounds is not None and math.isfinite(bounds[1] - bounds[0])


def constant_interval(value: float, count: int, bounds: Bounds | None) -> tuple[float, float] | None:
    """Return the interval of a mean of values that are all equal, which have no variance to estimate it from.

    It is that of the range, None without one: 100 of 100 at the upper end still mean that some are not.
    """
    if count < 2 or not has_range(bounds) or not bounds[0] <= value <= bounds[1]:
        return None
    return weighted_interval(np.array([value]), np.array([float(count)]), *bounds)


def few_values_interval(values: NDArray[np.float64], bounds: Bounds | None) -> tuple[float, float]:
    """Return the interval of the mean of fewer than FEW values; NaN for fewer than two."""
    n = len(values)
    if n < 2:
        return math.nan, math.nan
    least, most = float(values.min()), float(values.max())
    if has_range(bounds) and bounds[0] <= least and most <= bounds[1]:
        return bounded_interval(values, *bounds)
    mean = float(values.mean())
    return within(student_interval(n, mean, float(((values - mean) ** 2).sum())), least, most, bounds)


def student_interval(count: int, mean: float, m2: float) -> tuple[float, float]:
    """Return the interval of a mean by Student's distribution; ``m2`` is the sum of squared deviations.

    A single value has no interval: both ends are NaN.
    """
    if count < 2:
        return math.nan, math.nan
    half = student_quantile(count - 1) * math.sqrt(m2 / (count - 1) / count)
    return mean - half, mean + half


def mean_interval(values: NDArray[np.float64], bounds: Bounds | None = None) -> tuple[float, float]:
    """Return the interval of the mean of values, all of which are here; NaN for fewer than two.

    ``bounds``: the range that the metric declares; None if it has no ends.
    """
    n = len(values)
    if n < FEW:
        return few_values_interval(values, bounds)
    least, most = float(values.min()), float(values.max())
    if least == most and (constant := constant_interval(least, n, bounds)) is not None:
        return constant
    if n > BOOTSTRAPPED:
        mean = float(values.mean())
        return within(normal_interval(n, mean, float(((values - mean) ** 2).sum())), least, most, bounds)
    generator = np.random.Generator(np.random.PCG64(0))
    means = np.empty(RESAMPLES)
    rows = max(1, BLOCK // n)
    for at in range(0, RESAMPLES, rows):  # the numbers, and the sums of a row, are those of one resample at a time
        block = means[at : at + rows]
        block[:] = values[generator.integers(0, n, (len(block), n))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)
