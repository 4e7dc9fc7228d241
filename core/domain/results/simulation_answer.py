"""Answer of a simulation: its score over all tasks with an interval, and its failures by outcome.

It is the same quantity while the simulation runs and after its end: a task that is not ``ok`` counts with the metric's
worst value, as in comparisons and on leaderboards. Where the dataset declares no worst value, it is left out.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from core.domain.results.intervals import Bounds, constant_interval, normal_interval, within
from core.domain.results.rates import declared_bounds
from core.domain.results.result_columns import TaskResult
from core.domain.results.score import Score

#: Fewest tasks whose mean has an interval by the normal approximation.
FEWEST = 30


def failing_outcomes(definition: Mapping[str, Any]) -> tuple[str, Sequence[Any]] | None:
    """Return the metric whose outcomes a dataset counts as failures, and these outcomes; None if it names none."""
    failure = definition.get("failure") or {}
    return (failure["metric"], failure["in"]) if failure else None


class FailureTally:
    """Counts ``ok`` results by the outcomes that the dataset counts as failures."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        failing = failing_outcomes(definition)
        self._metric = failing[0] if failing else None
        self._counts = {outcome: 0 for outcome in failing[1]} if failing else {}

    def add(self, result: TaskResult) -> None:
        """Add a result that is ``ok``."""
        value = result.metrics.get(self._metric) if self._metric else None
        if isinstance(value, str | int | float) and value in self._counts:
            self._counts[value] += 1

    def described(self) -> dict[str, int] | None:
        """Return the counts by outcome, also those of 0; None if the dataset counts no outcome as a failure."""
        return {str(outcome): count for outcome, count in self._counts.items()} if self._metric else None


def failures_of_older(definition: Mapping[str, Any], outcomes: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Return the counts of a `FailureTally` from the ``outcomes`` of a summary; those of numbers are not in it."""
    failing = failing_outcomes(definition)
    counted = outcomes.get(failing[0], {}) if failing else {}
    return {str(outcome): counted.get(outcome, 0) for outcome in failing[1]} if failing else {}


def one_task_each(plan: Mapping[str, Any]) -> bool:
    """Return whether a task plan has one task of each scenario: no repetition, and no sweep of several values."""
    return plan.get("repeat", 1) == 1 and all(len(values) == 1 for values in (plan.get("sweep") or {}).values())


def answer_of(
    definition: Mapping[str, Any],
    *,
    done: int,
    failed: int,
    metrics: Mapping[str, Mapping[str, Any]],
    failures: Mapping[str, int] | None,
    alone: bool,
) -> dict[str, Any] | None:
    """Return the answer of ``done`` tasks, of which ``failed`` are not ``ok``; None without a task.

    ``metrics``: statistics of the ``ok`` tasks, of a summary or so far. ``failures``: see `FailureTally`; None if they
    are not known. ``alone``: whether each scenario has one task; an interval over tasks holds for these only.
    """
    if not done:
        return None
    return {
        "score": _score(definition, done, failed, metrics, alone),
        "failures": _failures(definition, done, failed, failures),
    }


def _score(
    definition: Mapping[str, Any], done: int, failed: int, metrics: Mapping[str, Mapping[str, Any]], alone: bool
) -> dict[str, Any] | None:
    """Return the score over all tasks; None for a dataset without one, and without a value."""
    name = Score.of(definition).metric
    declared: Mapping[str, Any] = next((metric for metric in definition["metrics"] if metric["name"] == name), {})
    worst = declared.get("worst")
    statistics = metrics.get(name or "") or {"count": 0}
    count = int(statistics["count"])
    counted = failed if worst is not None else 0
    if name is None or not count + counted:
        return None
    mean_ok = statistics.get("mean")
    if count and mean_ok is None:  # beyond every float
        return None
    mean = ((mean_ok or 0.0) * count + (worst or 0.0) * counted) / (count + counted)
    low, high = _interval(statistics, mean, counted, worst, alone, declared_bounds(declared))
    return {
        "metric": name,
        "title": declared.get("title") or name,
        "unit": declared.get("unit") or "",
        "better": declared.get("better"),
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
    statistics: Mapping[str, Any],
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
    low, high = ("low_penalised", "high_penalised") if failed else ("low", "high")
    if statistics.get(low) is not None and statistics.get(high) is not None:
        return statistics[low], statistics[high]
    count, std = int(statistics["count"]), statistics.get("std")
    if not alone or count + failed < FEWEST or low in statistics:
        return math.nan, math.nan
    deviations = std * std * (count - 1) if std is not None and count else 0.0
    if count and failed and worst is not None:
        deviations += count * failed / (count + failed) * (statistics["mean"] - worst) ** 2
    if not deviations and (constant := constant_interval(mean, count + failed, bounds)) is not None:
        return constant
    extremes = [statistics.get(name) for name in ("min", "max")] if count else []
    values = [value for value in (*extremes, worst if failed else None) if value is not None]
    least, most = min(values, default=-math.inf), max(values, default=math.inf)
    return within(normal_interval(count + failed, mean, deviations), least, most, bounds)


def _failures(
    definition: Mapping[str, Any], done: int, failed: int, failures: Mapping[str, int] | None
) -> dict[str, Any] | None:
    """Return the failures; None where their outcomes are not known."""
    failing = failing_outcomes(definition)
    if failing is not None and failures is None:
        return None
    outcomes = dict(failures or {})
    count = min(done, failed + sum(outcomes.values()))
    return {
        "count": count,
        "tasks": done,
        "share": count / done,
        "not_ok": failed,
        "metric": failing[0] if failing else None,
        "outcomes": outcomes,
    }


def _finite(value: float) -> float | None:
    """Return a number in six significant digits; None if there is none."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
