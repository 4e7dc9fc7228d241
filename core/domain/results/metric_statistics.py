"""Statistics of a metric, as summaries and the progress of simulations have them."""

import math
from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType


class MetricStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the tasks that are ``ok``; ``mean_penalised`` and its interval are those of all tasks.

    The ends of an interval are unset where a summary has none, and None where it has no number for them.
    """

    count: int
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None
    low: float | UnsetType | None = UNSET
    high: float | UnsetType | None = UNSET
    mean_ok: float | None = None
    mean_penalised: float | None = None
    low_penalised: float | UnsetType | None = UNSET
    high_penalised: float | UnsetType | None = UNSET

    def interval(self, *, penalised: bool) -> tuple[float, float] | None:
        """Return the interval of the mean, of all tasks if ``penalised``; None if there is none.

        An end without a number is NaN.
        """
        low, high = (self.low_penalised, self.high_penalised) if penalised else (self.low, self.high)
        if low is UNSET or high is UNSET:
            return None
        return math.nan if low is None else low, math.nan if high is None else high


def metric_statistics(statistics: Mapping[str, object]) -> MetricStatistics:
    """Return the statistics of a metric of a summary."""
    return msgspec.convert(statistics, MetricStatistics)
