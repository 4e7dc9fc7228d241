"""Worst tasks of a simulation: those that are not ``ok`` first, then those with the worst scores."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.domain.results.result_columns import TaskResult
from core.domain.results.result_table import TableRows
from core.domain.results.score import Score, number_of

#: Number of tasks that a summary names.
NAMED = 10


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
        score = number_of(result.metrics.get(metric)) if metric else None
        return float("inf") if score is None else self._score.sign * score

    def described(self) -> list[dict[str, object]]:
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
