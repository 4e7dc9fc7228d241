"""Worst tasks of a simulation: those that are not ``ok`` first, then those with the worst scores."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.domain.outcomes import SHOWN
from core.domain.result_columns import TaskResult

#: Number of tasks that a summary names.
NAMED = 10


class WorstTasks:
    """The worst tasks so far, of results that are added in task order.

    ``metric``: the dataset's score; without it only tasks that are not ``ok`` are named. ``lower_is_better``: its
    direction.
    """

    def __init__(self, metric: str | None, *, lower_is_better: bool) -> None:
        self._metric = metric
        self._sign = -1.0 if lower_is_better else 1.0
        self._worst: list[tuple[float, TaskResult]] = []

    def add(self, results: Sequence[TaskResult]) -> None:
        """Add results."""
        worst = self._worst
        limit = worst[-1][0] if len(worst) == NAMED else float("inf")
        if limit == float("-inf"):
            return
        candidates = [(badness, result) for result in results if (badness := self._badness(result)) < limit]
        if candidates:  # sorting is stable: of equals, the earlier task comes first
            self._worst = sorted(worst + candidates, key=lambda item: item[0])[:NAMED]

    def _badness(self, result: TaskResult) -> float:
        """Return the sort key of a result, the worst first; infinity for results that are not named."""
        if result.status != "ok":
            return float("-inf")
        score = _number(result.metrics.get(self._metric)) if self._metric else None
        return float("inf") if score is None else self._sign * score

    def described(self) -> list[dict[str, Any]]:
        """Return the worst tasks, the worst first."""
        return [
            {
                "task": result.task,
                "status": result.status,
                "score": _number(result.metrics.get(self._metric)) if self._metric else None,
                "error": result.error[:SHOWN] if result.error else result.error,
                "scenario": result.scenario,
            }
            for _, result in self._worst
        ]


def worst_tasks_of(definition: Mapping[str, Any]) -> WorstTasks:
    """Return the empty list for results of a dataset."""
    name = (definition.get("score") or {}).get("metric")
    metric: Mapping[str, Any] = next((metric for metric in definition["metrics"] if metric["name"] == name), {})
    return WorstTasks(name, lower_is_better=metric.get("better") == "lower")


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
