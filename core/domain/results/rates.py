"""Rates: metrics that are 0 or 1 for each task, whose mean is a share of tasks and has Wilson's interval.

Whether a metric is a rate follows from its declaration, not from values that happen to be 0 or 1: an impact speed of 0
in all tasks is a mean of speeds, and Wilson's interval of it would be in no unit.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from core.domain.results.declared_results import DeclaredMetric
from core.domain.results.intervals import Bounds

#: Least number of values of a metric without a declaration that can show that it is a rate.
OBSERVED = 30


def declared_rate(metric: DeclaredMetric) -> bool | None:
    """Return whether a metric of a dataset's definition can be a rate; None if it declares neither unit nor range.

    A rate has the range from 0 to 1 and no unit. The metrics of users' environments usually declare neither.
    """
    if metric.unit:
        return False
    if metric.low is None and metric.high is None:
        return None
    return metric.low == 0 and metric.high == 1


def declared_rates(metrics: Iterable[DeclaredMetric]) -> dict[str, bool | None]:
    """Return `declared_rate` of each metric of a dataset's definition, by name."""
    return {metric.name: declared_rate(metric) for metric in metrics}


def declared_bounds(metric: DeclaredMetric) -> Bounds | None:
    """Return the least and the largest value that a metric of a dataset's definition declares, infinite for none.

    None if it declares neither.
    """
    low, high = metric.low, metric.high
    if low is None and high is None:
        return None
    return -math.inf if low is None else float(low), math.inf if high is None else float(high)


def is_rate(declared: bool | None, *, count: int, low: float, high: float, binary: bool) -> bool:
    """Return whether a metric is a rate. A value other than 0 and 1, such as a share of steps, always says no.

    Without a declaration, at least OBSERVED values have to be 0 and 1, and both have to occur: values that are all
    equal say nothing. ``low`` and ``high``: extremes of the values. ``binary``: whether each is 0 or 1.
    """
    if declared is not None:
        return declared and binary
    return binary and count >= OBSERVED and (low, high) == (0, 1)


def are_rates(declared: bool | None, values: NDArray[np.float64]) -> bool:
    """Return whether a metric with these values is a rate."""
    if not len(values):
        return bool(declared)
    binary = bool(((values == 0) | (values == 1)).all())
    return is_rate(declared, count=len(values), low=float(values.min()), high=float(values.max()), binary=binary)
