"""Answer of a simulation: its score over all tasks with an interval, and its failures by outcome.

It is the same quantity while the simulation runs and after its end: a task that is not ``ok`` counts with the metric's
worst value, as in comparisons and on leaderboards. Where the dataset declares no worst value, it is left out.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from core.domain.results.declared_results import DeclaredFailure, DeclaredMetric, DeclaredResults, declared_results
from core.domain.results.intervals import Bounds, constant_interval, normal_interval, within
from core.domain.results.metric_statistics import MetricStatistics, metric_statistics
from core.domain.results.rates import declared_bounds
from core.domain.results.result_columns import TaskResult

#: Fewest tasks whose mean has an interval by the normal approximation.
FEWEST = 30


class FailureTally:
    """Counts ``ok`` results by the outcomes that the dataset counts as failures."""

    def __init__(self, definition: Mapping[str, object]) -> None:
        failure = declared_results(definition).failure
        self._metric = failure.metric if failure else None
        self._counts = {outcome: 0 for outcome in failure.outcomes} if failure else {}

    def add(self, result: TaskResult) -> None:
        """Add a result that is ``ok``."""
        value = result.metrics.get(self._metric) if self._metric else None
        if isinstance(value, str | int | float) and value in self._counts:
            self._counts[value] += 1

    def described(self) -> dict[str, int] | None:
        """Return the counts by outcome, also those of 0; None if the dataset counts no outcome as a failure."""
        return {str(outcome): count for outcome, count in self._counts.items()} if self._metric else None


def failures_of_older(definition: Mapping[str, object], outcomes: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Return the counts of a `FailureTally` from the ``outcomes`` of a summary; those of numbers are not in it."""
    failure = declared_results(definition).failure
    counted = outcomes.get(failure.metric, {}) if failure else {}
    return {str(outcome): counted.get(str(outcome), 0) for outcome in failure.outcomes} if failure else {}


def one_task_each(plan: Mapping[str, object]) -> bool:
    """Return whether a task plan has one task of each scenario: no repetition, and no sweep of several values."""
    sweep = msgspec.convert(plan.get("sweep") or {}, Mapping[str, Sequence[object]])
    return plan.get("repeat", 1) == 1 and all(len(values) == 1 for values in sweep.values())


def answer_of(
    definition: Mapping[str, object],
    *,
    done: int,
    failed: int,
    metrics: Mapping[str, Mapping[str, object]],
    failures: Mapping[str, int] | None,
    alone: bool,
) -> dict[str, object] | None:
    """Return the answer of ``done`` tasks, of which ``failed`` are not ``ok``; None without a task.

    ``metrics``: statistics of the ``ok`` tasks, of a summary or so far. ``failures``: see `FailureTally`; None if they
    are not known. ``alone``: whether each scenario has one task; an interval over tasks holds for these only.
    """
    if not done:
        return None
    declared = declared_results(definition)
    return {
        "score": _score(declared, done, failed, metrics, alone),
        "failures": _failures(declared.failure, done, failed, failures),
    }


def _score(
    declared: DeclaredResults, done: int, failed: int, metrics: Mapping[str, Mapping[str, object]], alone: bool
) -> dict[str, object] | None:
    """Return the score over all tasks; None for a dataset without one, and without a value."""
    name = declared.score.metric if declared.score is not None else None
    if name is None:
        return None
    metric = declared.metric(name) or DeclaredMetric(name=name)
    worst = metric.worst
    statistics = metric_statistics(metrics.get(name) or {"count": 0})
    count = statistics.count
    counted = failed if worst is not None else 0
    if not count + counted:
        return None
    mean_ok = statistics.mean
    if count and mean_ok is None:  # beyond every float
        return None
    mean = ((mean_ok or 0.0) * count + (worst or 0.0) * counted) / (count + counted)
    low, high = _interval(statistics, mean, counted, worst, alone, declared_bounds(metric))
    return {
        "metric": name,
        "title": metric.title or name,
        "unit": metric.unit or "",
        "better": metric.better,
        "mean": _finite(mean),
        "low": _finite(low),
        "high": _finite(high),
        "tasks": count + counted,
        "not_ok": counted,
        "left_out": done - count - counted,
        "worst": worst,
        "ok_mean": _finite(mean_ok if mean_ok is not None else math.nan),
    }


def _interval(
    statistics: MetricStatistics,
    mean: float,
    failed: int,
    worst: float | None,
    alone: bool,
    bounds: Bounds | None,
) -> tuple[float, float]:
    """Return the 95 % interval of the mean over all tasks, of which ``failed`` have the value ``worst``; NaN for none.

    It is that of the summary, if the summary has one. Else it is the normal one, if each scenario has one task and
    there are enough of them.
    """
    interval = statistics.interval(penalised=failed > 0)
    if interval is not None:
        return (math.nan, math.nan) if any(map(math.isnan, interval)) else interval
    count, std = statistics.count, statistics.std
    if not alone or count + failed < FEWEST:
        return math.nan, math.nan
    deviations = std * std * (count - 1) if std is not None and count else 0.0
    if count and failed and worst is not None:
        deviations += count * failed / (count + failed) * ((statistics.mean or 0.0) - worst) ** 2
    if not deviations and (constant := constant_interval(mean, count + failed, bounds)) is not None:
        return constant
    extremes = [statistics.min, statistics.max] if count else []
    values = [value for value in (*extremes, worst if failed else None) if value is not None]
    least, most = min(values, default=-math.inf), max(values, default=math.inf)
    return within(normal_interval(count + failed, mean, deviations), least, most, bounds)


def _failures(
    failure: DeclaredFailure | None, done: int, failed: int, failures: Mapping[str, int] | None
) -> dict[str, object] | None:
    """Return the failures; None where their outcomes are not known."""
    if failure is not None and failures is None:
        return None
    outcomes = dict(failures or {})
    count = min(done, failed + sum(outcomes.values()))
    return {
        "count": count,
        "tasks": done,
        "share": count / done,
        "not_ok": failed,
        "metric": failure.metric if failure else None,
        "outcomes": outcomes,
    }


def _finite(value: float) -> float | None:
    """Return a number in six significant digits; None if there is none."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
