"""Worst tasks of a simulation: those that are not ``ok`` first, then those with the worst scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.domain.outcomes import SHOWN
from core.domain.result_columns import TaskResult
from core.domain.result_table import TableRows

#: Number of tasks that a summary names.
NAMED = 10


@dataclass(frozen=True, slots=True)
class Score:
    """The metric by which tasks that are ``ok`` are compared; without one, only the others are named as worst tasks."""

    metric: str | None
    lower_is_better: bool = False

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> "Score":
        """Return the score of a dataset."""
        name = (definition.get("score") or {}).get("metric")
        metric: Mapping[str, Any] = next((metric for metric in definition["metrics"] if metric["name"] == name), {})
        return cls(name, metric.get("better") == "lower")

    @property
    def sign(self) -> float:
        """Factor with which the worst score is the least."""
        return -1.0 if self.lower_is_better else 1.0

    def described(self, result: TaskResult) -> dict[str, Any]:
        """Return a task as lists of worst tasks have it."""
        return {
            "task": result.task,
            "status": result.status,
            "score": _number(result.metrics.get(self.metric)) if self.metric else None,
            "error": result.error[:SHOWN] if result.error else result.error,
            "scenario": result.scenario,
        }


class WorstTasks:
    """The worst tasks so far, of results that are added in task order."""

    def __init__(self, score: Score) -> None:
        self._score = score
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
        metric = self._score.metric
        score = _number(result.metrics.get(metric)) if metric else None
        return float("inf") if score is None else self._score.sign * score

    def described(self) -> list[dict[str, Any]]:
        """Return the worst tasks, the worst first."""
        return [self._score.described(result) for _, result in self._worst]


def worst_rows(rows: TableRows, chosen: NDArray[np.bool_], score: Score, most: int) -> list[int]:
    """Return the numbers of up to ``most`` of the chosen tasks, as `WorstTasks` orders them, from a table's rows."""
    not_ok = rows.tasks[chosen & ~rows.ok]
    worst: list[int] = np.sort(not_ok)[:most].tolist()
    scores = rows.numbers.get(score.metric) if score.metric else None
    if scores is None or len(worst) == most:
        return worst
    present = np.flatnonzero(chosen & rows.ok & np.isfinite(scores))
    badness = score.sign * scores[present].astype(np.float64)
    if len(present) > (remaining := most - len(worst)):
        near = np.flatnonzero(badness <= np.partition(badness, remaining - 1)[remaining - 1])
        present, badness = present[near], badness[near]
    order = np.lexsort((rows.tasks[present], badness))  # of equals, the earlier task comes first
    worst += rows.tasks[present[order[:remaining]]].tolist()
    return worst


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
