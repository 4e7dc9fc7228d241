"""Score series: means of a simulation's score over consecutive parts of its tasks, few enough to be drawn in a row.

After the end the parts are equal shares of all tasks, in order of task. While it runs, they are results in order of
arrival, from the sketches of batches; parts are merged in pairs whenever there would be too many.
"""

import math
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from core.domain.results.result_columns import TaskResult

#: Most parts of a series.
PARTS = 24


class TaskSeries:
    """Series of a simulation with ``total`` tasks; results may be added in any order. Tasks without a score count not.

    ``metric``: None, if the dataset has no score.
    """

    def __init__(self, metric: str | None, total: int) -> None:
        self._metric = metric
        self._total = total
        self._counts = np.zeros(min(PARTS, total), np.int64)
        self._sums = np.zeros(min(PARTS, total))

    def add(self, results: Sequence[TaskResult]) -> None:
        """Add results."""
        if self._metric is None:
            return
        scored = [
            (result.task, value)
            for result in results
            if result.status == "ok" and result.task < self._total
            if isinstance(value := result.metrics.get(self._metric), int | float) and abs(value) <= sys.float_info.max
        ]
        if not scored:
            return
        parts = np.array([task for task, _ in scored], np.int64) * len(self._counts) // self._total
        self._counts += np.bincount(parts, minlength=len(self._counts))
        self._sums += np.bincount(parts, [float(value) for _, value in scored], minlength=len(self._counts))

    def described(self) -> dict[str, object] | None:
        """Return the metric, its mean, and the means of the parts that have a score; None without any score."""
        return _described(self._metric, self._counts.tolist(), self._sums.tolist())


class ArrivalSeries:
    """Series of results in order of arrival, of batches of which only number and sum are known."""

    def __init__(self, metric: str | None) -> None:
        self._metric = metric
        self._width = 1
        self._counts: list[int] = []
        self._sums: list[float] = []

    def add(self, sketch: Mapping[str, Sequence[float]]) -> None:
        """Add the sketch of a batch: number, sum, and more, by metric."""
        if self._metric is None or self._metric not in sketch:
            return
        count, total, *_ = sketch[self._metric]
        if not math.isfinite(total):
            return
        remaining = int(count)
        while remaining > 0:
            if not self._counts or self._counts[-1] == self._width:
                self._begin_part()
            taken = min(remaining, self._width - self._counts[-1])
            self._counts[-1] += taken
            self._sums[-1] += total * taken / count
            remaining -= taken

    def _begin_part(self) -> None:
        if len(self._counts) == PARTS:
            self._width *= 2
            self._counts = [sum(pair) for pair in zip(self._counts[::2], self._counts[1::2], strict=True)]
            self._sums = [sum(pair) for pair in zip(self._sums[::2], self._sums[1::2], strict=True)]
        self._counts.append(0)
        self._sums.append(0.0)

    def described(self) -> dict[str, object] | None:
        """Return the metric, its mean, and the means of the parts; None without any score."""
        return _described(self._metric, self._counts, self._sums)


def _described(metric: str | None, counts: Sequence[int], sums: Sequence[float]) -> dict[str, object] | None:
    """Return the description of a series, in six significant digits."""
    if not sum(counts):
        return None
    means = [total / count for count, total in zip(counts, sums, strict=True) if count]
    if not all(map(math.isfinite, means)):
        return None
    mean = sum(sums) / sum(counts)
    return {"metric": metric, "mean": _rounded(mean), "series": [_rounded(value) for value in means]}


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
