"""Paired difference of one metric between two simulations, over the scenarios that both have: means and interval.

The unit is the scenario: its value is the mean over the repetitions and swept combinations that both sides have.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.domain.results.intervals import mean_interval
from core.domain.results.rates import are_rates
from core.domain.results.statistics import mcnemar

Floats = NDArray[np.float64]


def paired(
    indexes: Sequence[int],
    first: Floats,
    second: Floats,
    declared_rate: bool | None = None,
    width: float | None = None,
) -> dict[str, object] | None:
    """Return the mean paired difference with its 95 % interval; NaN is not a value. None without a pair of values.

    ``indexes``: scenario of each pair of tasks. ``declared_rate``: whether the dataset declares the metric as a rate.
    ``width``: of the declared range, None without one. A rate also has McNemar's test, of the scenarios in which the
    share of one side is higher. Shapes: (pairs,).
    """
    shared = ~(np.isnan(first) | np.isnan(second))
    if not shared.any():
        return None
    mine, other = first[shared], second[shared]
    _, codes = np.unique(np.asarray(indexes)[shared], return_inverse=True)
    sizes = np.bincount(codes)
    means, to_means = (np.bincount(codes, weights=values) / sizes for values in (mine, other))
    differences = means - to_means
    low, high = mean_interval(differences, None if width is None else (-width, width))
    result: dict[str, object] = {
        "count": len(sizes),
        "tasks": len(mine),
        "mean": float(means.mean()),
        "to": float(to_means.mean()),
        "difference": float(differences.mean()),
        "low": low if math.isfinite(low) else None,
        "high": high if math.isfinite(high) else None,
    }
    if are_rates(declared_rate, np.concatenate((mine, other))):
        result |= mcnemar(int((differences > 0).sum()), int((differences < 0).sum()))
    return result
