"""Margin of a comparison: the difference in a metric below which two models count as equivalent.

By default it is 2 % of the range that the dataset declares, or of a narrower bound that is named: 2 points of a score
from 0 to 100, .02 of a rate. It is not part of a dataset's definition, whose digest is part of every task's seed, and
is recorded with each comparison.
"""

import math

from core.domain.comparisons.metric_scale import MetricScale, ScaleKind
from core.domain.results.declared_results import DeclaredMetric

#: Share of the declared range.
DEFAULT_SHARE = 0.02


def default_margin(metric: DeclaredMetric, scale: MetricScale) -> float:
    """Return the margin of a metric of a dataset's definition; 0, none, if it declares no range.

    Where a narrower bound is named, it is that share of the bound: a margin of nearly all that counts refutes nothing.
    """
    low, high = metric.low, metric.high
    if low is None or high is None or scale.kind is ScaleKind.SIGN:
        return 0.0
    return DEFAULT_SHARE * min(abs(float(high - low)), scale.bound)


def checked_margin(metric: DeclaredMetric, scale: MetricScale, requested: float | None) -> float:
    """Return the margin of a comparison; raise ValueError for one that cannot be tested on the metric's scale."""
    name, unit = metric.name, f" {scale.unit}" if scale.unit else ""
    if requested is None:
        return default_margin(metric, scale)
    if not (math.isfinite(requested) and requested >= 0):
        raise ValueError(f"`margin` of `{name}` is a number of at least 0, not {requested}.")
    if requested and scale.kind is ScaleKind.SIGN:
        raise ValueError(
            f"`margin`: the dataset declares no range of `{name}`, so only the sign of a difference counts. Name a"
            " `bound`, the largest difference that counts, beside the `margin`."
        )
    if requested >= scale.bound:
        raise ValueError(
            f"`margin` of `{name}` must be below {scale.bound:g}{unit}, the largest difference that counts."
        )
    return float(requested)
