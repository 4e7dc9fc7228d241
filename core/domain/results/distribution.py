"""Distributions of all metrics of a result table, kept up to date as the table grows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from core.domain.results.declared_results import DeclaredFailure
from core.domain.results.histogram import Floats, RunningHistogram
from core.domain.results.result_table import ResultTable, TableRows

#: The metric that all results have: 1 for a task that failed, unless the dataset has a metric of this name.
FAILED = "failed"


def failing(rows: TableRows, failure: DeclaredFailure | None) -> NDArray[np.bool_]:
    """Return which tasks failed: those that are not ``ok``, and those with a value that ``failure`` lists.

    ``failure``: the dataset's; None if it declares none.
    """
    failed = ~rows.ok
    if failure is None:
        return failed
    name, listed = failure.metric, failure.outcomes
    if (texts := rows.texts.get(name)) is not None:
        failed |= np.isin(texts.codes, [code for code, text in enumerate(texts.names) if text in listed])
    if (numbers := rows.numbers.get(name)) is not None:
        failed |= np.isin(numbers, [value for value in listed if isinstance(value, int | float)])
    return failed


@dataclass(slots=True)
class _RunningCounts:
    """Number of rows with each code; code -1 is not counted."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, codes: NDArray[np.int16] | NDArray[np.uint8]) -> None:
        new = np.bincount(codes[codes >= 0])
        self.counts = np.pad(self.counts, (0, max(0, len(new) - len(self.counts))))
        self.counts[: len(new)] += new


class RunningDistributions:
    """Histograms of a table's numbers and counts of its texts.

    ``worst``: by declared metric, the value that a task counts which is not ``ok``. ``failure``: see `failing`.
    ``never``: by metric, the value that stands for "never", which is counted apart.
    The cost of an update grows with the rows that are new, unless a sample replaces the table's rows.
    """

    def __init__(
        self,
        worst: Mapping[str, float | None],
        failure: DeclaredFailure | None,
        never: Mapping[str, float] | None = None,
    ) -> None:
        self._worst = worst
        self._never = never or {}
        self._failure = failure
        self._reset(0)

    def _reset(self, level: int) -> None:
        self._level = level
        self._count = 0
        self._statuses = _RunningCounts()
        self._failed = 0
        self._histograms: dict[str, RunningHistogram] = {}
        self._never_counts = dict.fromkeys(self._never, 0)
        self._texts: dict[str, _RunningCounts] = {}

    def update(self, table: ResultTable) -> TableRows:
        """Add the table's rows that are new since the last update; return all its rows."""
        if table.level != self._level:
            self._reset(table.level)
        rows = table.rows()
        since, self._count = self._count, len(rows.tasks)
        self._statuses.add(rows.statuses[since:])
        self._failed += int(failing(rows.since(since), self._failure).sum())
        for name, column in rows.numbers.items():
            histogram = self._histograms.setdefault(name, RunningHistogram())
            never = self._never.get(name)
            if never is not None:
                self._never_counts[name] += int((column[since:] == never).sum())
            histogram.add(
                _finite(column[since:], never),
                lambda column=column, never=never: _finite(column, never),  # type: ignore[misc]
            )
        for name, texts in rows.texts.items():
            self._texts.setdefault(name, _RunningCounts()).add(texts.codes[since:])
        return rows

    def described(self, rows: TableRows) -> dict[str, object]:
        """Return the statuses, and each metric's distribution, of the rows of the last update."""
        statuses = {
            name: count for name, count in zip(rows.status_names, self._statuses.counts.tolist(), strict=False) if count
        }
        failures_first = dict(sorted(statuses.items(), key=lambda item: (item[0] == "ok", item[0])))
        ok = statuses.get("ok", 0)
        not_ok = {status: count for status, count in failures_first.items() if status != "ok"}
        metrics = {
            name: self._described(name, rows, ok, not_ok)
            for name in dict.fromkeys((*self._worst, *rows.numbers, *rows.texts))
        }
        metrics.setdefault(FAILED, self._described_failures())
        return {"statuses": failures_first, "metrics": metrics}

    def _described(self, name: str, rows: TableRows, ok: int, not_ok: Mapping[str, int]) -> dict[str, object]:
        histogram = self._histograms.get(name) or RunningHistogram()
        document: dict[str, object] = {"kind": "number", **_histogram(histogram)}
        count = histogram.count
        if (counts := self._texts.get(name)) is not None:
            values = dict(sorted(zip(rows.texts[name].names, counts.counts.tolist(), strict=False)))
            in_all = int(counts.counts.sum())
            if not count:
                document = {"kind": "category"}
            document |= {"count": count + in_all, "values": {value: n for value, n in values.items() if n}}
            count += in_all
        elif not count and self._failure is not None and name == self._failure.metric:  # its outcomes are texts
            document = {"kind": "category", "count": 0, "values": {}}
        if name in self._never_counts:
            document["never"] = self._never_counts[name]
        document["missing"] = ok - count - self._never_counts.get(name, 0)
        worst = self._worst.get(name)
        if worst is not None:
            document["not_ok"] = {"value": worst, "statuses": dict(not_ok)}
        return document

    def _described_failures(self) -> dict[str, object]:
        histogram = RunningHistogram()
        outcomes = np.repeat([0.0, 1.0], [self._count - self._failed, self._failed])
        histogram.add(outcomes, lambda: outcomes)
        return {"kind": "number", **_histogram(histogram), "missing": 0}


def _histogram(histogram: RunningHistogram) -> dict[str, object]:
    count = histogram.count
    mean = histogram.total / count if count else None
    return {
        "count": count,
        "mean": mean if mean is not None and np.isfinite(mean) else None,
        "min": histogram.range.low if count else None,
        "max": histogram.range.high if count else None,
        "edges": histogram.edges,
        "counts": histogram.counts.tolist(),
    }


def _finite(column: Floats, never: float | None) -> Floats:
    """Return the finite values of a column but for those that stand for "never"."""
    values = column.astype(np.float64)
    counted = np.isfinite(values)
    if never is not None:
        counted &= values != never
    present: Floats = values[counted]
    return present
