"""Dependence of a metric on one or two parameters: statistics by value or bin, a sample of points, a heat map."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from core.domain.results.declared_results import DeclaredFailure
from core.domain.results.distribution import FAILED, failing
from core.domain.results.histogram import ValueRange, bins_of
from core.domain.results.intervals import FEW, Bounds, mean_interval, normal_interval, wilson
from core.domain.results.rates import are_rates
from core.domain.results.result_groups import OTHERS
from core.domain.results.result_table import TableRows, TaskNumbers, TextValues, mixed
from core.domain.results.scenario_intervals import values_by_unit
from core.domain.results.scenario_units import ScenarioUnits
from core.domain.submissions.task_parameters import Parameter

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

#: Most points of a scatter plot.
POINTS = 2000
#: Most different numbers that are groups of their own; more are divided into at most so many bins.
NUMBERS = 20
#: Most values of a category, alone and on an axis of a heat map; further values count together.
VALUES, VALUES_OF_AXIS = 200, 40
#: Most values for quartiles; beyond it they are those of a sample.
SORTED = 100_000
#: Most values in all groups for the bootstrap, which takes 1,000 times as many steps.
BOOTSTRAPPED = 2000


@dataclass(frozen=True, slots=True)
class Axis:
    """The groups of a parameter: values, or bins of numbers between ``edges``."""

    parameter: Parameter
    values: Sequence[object]
    edges: Sequence[float]

    def __len__(self) -> int:
        return len(self.values) or len(self.edges) - 1

    def codes(self, tasks: TaskNumbers) -> Codes:
        """Return the group of each task, -1 for a task without a value."""
        values = self.parameter.of(tasks)
        if self.parameter.kind == "category":
            labels: Codes = np.minimum(values, len(self) - 1).astype(np.int64)
            return labels
        present = np.isfinite(values)
        numbers = np.where(present, values, 0.0)
        codes = bins_of(self.edges, numbers) if self.edges else np.searchsorted(np.asarray(self.values), numbers)
        return np.where(present, codes, -1)

    def described(self) -> dict[str, object]:
        """Return the axis for clients."""
        document = {"name": self.parameter.name, "source": self.parameter.source, "kind": self.parameter.kind}
        return document | ({"edges": list(self.edges)} if self.edges else {"values": list(self.values)})

    def group(self, code: int) -> dict[str, object]:
        """Return what identifies a group."""
        if self.edges:
            return {"from": self.edges[code], "to": self.edges[code + 1]}
        return {"value": self.values[code]}


def axis_of(parameter: Parameter, most_values: int = VALUES) -> Axis:
    """Return the groups of a parameter, which depend on the simulation and not on its results so far."""
    if parameter.kind == "category":
        values = parameter.values
        return Axis(parameter, values if len(values) <= most_values else [*values[: most_values - 1], OTHERS], ())
    if len(parameter.values) <= NUMBERS:
        return Axis(parameter, parameter.values, ())
    numbers = ValueRange()
    numbers.add(np.array(parameter.values, np.float64))
    return Axis(parameter, (), numbers.edges(NUMBERS))


def metric_values(
    metric: str,
    rows: TableRows,
    worst: Mapping[str, float | None],
    failure: DeclaredFailure | None,
    never: Mapping[str, float] | None = None,
) -> Floats:
    """Return a metric's value of each task: of tasks that are not ``ok`` the worst value; NaN for none.

    ``worst``: by declared metric. ``failure``: the dataset's, for the metric `failed`. ``never``: by metric, the value
    that stands for "never", which is none.
    """
    values = rows.numbers.get(metric)
    if values is None and metric == FAILED and metric not in worst:
        return failing(rows, failure).astype(np.float64)
    penalty = worst.get(metric)
    numbers = np.full(len(rows.tasks), math.nan) if values is None else values.astype(np.float64)
    if never is not None and metric in never:
        numbers[numbers == never[metric]] = math.nan
    return np.where(rows.ok, numbers, math.nan if penalty is None else float(penalty))


def statistics_by_group(
    axis: Axis,
    tasks: TaskNumbers,
    values: Floats,
    declared_rate: bool | None = None,
    bounds: Bounds | None = None,
    units: ScenarioUnits | None = None,
) -> list[dict[str, object]]:
    """Return each group with count, mean, its 95 % interval, extremes and quartiles of a metric.

    Intervals are of Wilson for a rate, else of the bootstrap for up to BOOTSTRAPPED values and of the normal
    approximation for many; below FEW values see `few_values_interval`; the mean of a single value has none. Where a
    group has several tasks of a scenario, its interval is that of the scenarios (`UnitValues`). Quartiles are of up to
    SORTED values. ``declared_rate``: whether the dataset declares the metric as a rate. ``bounds``: its declared range.
    ``units``: the scenarios of the tasks, if some have several.
    """
    codes = axis.codes(tasks)
    present = (codes >= 0) & np.isfinite(values)
    codes, values, tasks = codes[present], values[present], tasks[present]
    groups = len(axis)
    counts = np.bincount(codes, minlength=groups)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        means = np.bincount(codes, values, groups) / counts
        m2 = np.bincount(codes, (values - means[codes]) ** 2, groups)
    lows, highs = np.full(groups, math.inf), np.full(groups, -math.inf)
    np.minimum.at(lows, codes, values)
    np.maximum.at(highs, codes, values)
    rate = are_rates(declared_rate, values)
    with np.errstate(over="ignore", invalid="ignore"):
        quartiles = _quartiles(codes, values, tasks, groups)
    bootstrap = not rate and len(values) <= BOOTSTRAPPED
    documents = []
    for code in range(groups):
        count, mean = int(counts[code]), float(means[code])
        document = axis.group(code) | {"count": count}
        statistics: dict[str, float] = {}
        if count:
            own = codes == code if units is not None or bootstrap or count < FEW else slice(0)
            of_units = None if units is None else values_by_unit(units.of(tasks[own]), values[own])
            if of_units is not None and of_units.repeated:
                low, high = of_units.interval(rate=rate, bounds=bounds)
            elif rate:
                low, high = wilson(round(mean * count), count)
            elif bootstrap or count < FEW:
                with np.errstate(over="ignore", invalid="ignore"):
                    low, high = mean_interval(values[own], bounds)
            else:
                low, high = normal_interval(count, mean, float(m2[code]))
            statistics = {"mean": mean, "low": low, "high": high, "min": lows[code], "max": highs[code]}
        names = ("mean", "low", "high", "min", "max")
        document |= {name: finite(statistics.get(name)) for name in names}
        documents.append(document | dict(zip(("p25", "p50", "p75"), map(finite, quartiles[code]), strict=True)))
    return documents


def _quartiles(codes: Codes, values: Floats, tasks: TaskNumbers, groups: int) -> list[list[float | None]]:
    if len(values) > SORTED:
        kept = _first_by_chance(tasks, SORTED)
        codes, values = codes[kept], values[kept]
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(groups + 1))
    parts = [values[order[first:last]] for first, last in pairwise(bounds.tolist())]
    return [np.quantile(part, (0.25, 0.5, 0.75)).tolist() if len(part) else [None] * 3 for part in parts]


def outcomes_by_group(axis: Axis, rows: TableRows, metric: str) -> list[dict[str, object]]:
    """Return each group with its count and the number of ``ok`` tasks by value of a metric with texts."""
    texts = rows.texts.get(metric) or TextValues(np.full(len(rows.tasks), -1, np.int16), ())
    codes = axis.codes(rows.tasks)
    present = (codes >= 0) & (texts.codes >= 0)
    kinds = len(texts.names)
    pairs = codes[present] * kinds + texts.codes[present]
    counts = np.bincount(pairs, minlength=len(axis) * kinds).reshape(len(axis), kinds)
    return [
        axis.group(code)
        | {"count": int(of_group.sum())}
        | {"values": {name: n for name, n in sorted(zip(texts.names, of_group.tolist(), strict=True)) if n}}
        for code, of_group in enumerate(counts)
    ]


def points(parameter: Parameter, rows: TableRows, values: Floats, most: int = POINTS) -> dict[str, list[object]]:
    """Return up to ``most`` tasks with their numbers of a parameter and a metric, in task order.

    The choice looks random, is repeatable, and changes little when results are added.
    """
    numbers = parameter.of(rows.tasks)
    present = np.flatnonzero(np.isfinite(numbers) & np.isfinite(values))
    chosen = present[_first_by_chance(rows.tasks[present], most)]
    chosen = chosen[np.argsort(rows.tasks[chosen])]
    return {
        "tasks": rows.tasks[chosen].tolist(),
        "x": numbers[chosen].tolist(),
        "y": values[chosen].tolist(),
        "statuses": [rows.status_names[code] for code in rows.statuses[chosen].tolist()],
    }


def _first_by_chance(tasks: TaskNumbers, most: int) -> NDArray[np.int64]:
    """Return the positions of up to ``most`` tasks, those whose mixed numbers are the least."""
    if len(tasks) <= most:
        return np.arange(len(tasks))
    return np.argpartition(mixed(tasks), most)[:most]


def heat_map(
    first: Axis, second: Axis, tasks: TaskNumbers, values: Floats
) -> dict[str, list[list[int]] | list[list[float | None]]]:
    """Return count and mean of each cell; rows are the groups of the first axis, columns those of the second."""
    rows, columns = first.codes(tasks), second.codes(tasks)
    present = (rows >= 0) & (columns >= 0) & np.isfinite(values)
    cells = rows[present] * len(second) + columns[present]
    shape = len(first), len(second)
    counts = np.bincount(cells, minlength=shape[0] * shape[1])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        means = np.bincount(cells, values[present], shape[0] * shape[1]) / counts
    return {
        "counts": counts.reshape(shape).tolist(),
        "means": [[finite(mean) for mean in row] for row in means.reshape(shape).tolist()],
    }


def finite(value: float | None) -> float | None:
    """Return a number, or None for what JSON cannot express."""
    return float(value) if value is not None and math.isfinite(value) else None
