"""Differences in words: with their unit, their interval, and the number of scenarios.

A difference of percentages is in points: 8 % of a score that was 40 % would be 3.2 points.
"""

from collections.abc import Sequence

from core.domain.comparisons.metric_scale import MetricScale, ScaleKind


def quantity(value: float, scale: MetricScale) -> str:
    """Return a difference with its unit; of signs, the share of the scenarios."""
    return f"{figure(value, scale)} {_unit(scale)}".rstrip()


def figure(value: float, scale: MetricScale) -> str:
    """Return a difference without its unit."""
    return f"{value * (100 if scale.kind is ScaleKind.SIGN else 1) + 0.0:.3g}"


def interval_words(mean: float, interval: Sequence[float], scale: MetricScale, error_rate: float) -> str:
    """Return a mean with its interval."""
    low, high = interval
    level = f"{100 * (1 - error_rate):g} % interval"
    return f"{quantity(mean, scale)} ({level} {figure(low, scale)} to {quantity(high, scale)})"


def number_of_scenarios(count: int) -> str:
    """Return a number of scenarios in words."""
    return f"{count:,} scenario" if count == 1 else f"{count:,} scenarios"


def _unit(scale: MetricScale) -> str:
    return "% of the scenarios" if scale.kind is ScaleKind.SIGN else scale.difference_unit
