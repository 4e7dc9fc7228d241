"""Tally of results: totals, groups, a sweep's combinations and the kinds of all columns, from blocks in task order.

Blocks have a fixed size, so that no figure depends on how results were batched. Memory is bounded: a group, a metric or
a combination beyond its limit is not listed.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.domain.results.declared_results import declared_metrics
from core.domain.results.grouped_column import Floats, GroupedColumn
from core.domain.results.rates import declared_bounds, declared_rates
from core.domain.results.result_columns import NESTED_COLUMNS, BlockColumn, ColumnKinds, TaskResult, columns_of
from core.domain.results.result_groups import Block, Grouping, NumberedTexts, OutcomeNames
from core.domain.results.scenario_units import ScenarioUnits
from core.domain.submissions.task_parameters import float_of, label_of

#: Results of a block.
BLOCK = 4096
#: Most values kept for quantiles: of a metric, and of a metric in all groups of a grouping.
KEPT, KEPT_IN_GROUPS = 100_000, 50_000
#: Most values kept of all metrics, and of all metrics in groups.
KEPT_OF_ALL, KEPT_OF_ALL_IN_GROUPS = 4_000_000, 2_000_000
#: Most groups of a grouping, and most metrics.
GROUPS, METRICS = 1000, 1000
#: Most combinations of a sweep, and values of a swept parameter, in a summary.
SWEPT = 200


class ResultTally:
    """Tally of results. ``metrics``: the dataset's. ``group_by``: fields of scenarios.

    ``swept``: the swept parameters. ``per_combination``: number of consecutive tasks with equal values of them.
    ``units``: the scenarios of the tasks, if some have several; they are the unit of all intervals. ``never``: by
    metric, a value that stands for "never"; it is counted apart.
    """

    def __init__(
        self,
        metrics: Sequence[Mapping[str, object]],
        group_by: Sequence[str] = (),
        swept: Sequence[str] = (),
        per_combination: int = 1,
        units: ScenarioUnits | None = None,
        never: Mapping[str, float] | None = None,
    ) -> None:
        self._never = never or {}
        self._units = units
        scenarios = None if units is None else units.positions
        declared = declared_metrics(metrics)
        self._bounds = {metric.name: ends for metric in declared if (ends := declared_bounds(metric)) is not None}
        self._worst = {metric.name: metric.worst for metric in declared}
        self._declared_rates = declared_rates(declared)
        self._booleans: dict[str, bool] = {}
        self._waiting: list[TaskResult] = []
        self._status_names = ["ok"]
        self._metric_names = dict.fromkeys(self._worst)
        self._outcome_names: dict[str, OutcomeNames] = {}
        self._total = Grouping(1, scenarios)
        self._timing: dict[str, GroupedColumn] = {}
        self._group_by = {name: Grouping(GROUPS) for name in group_by}
        self._parameters = {name: Grouping(SWEPT) for name in swept}
        self._sweep = Grouping(SWEPT, scenarios) if swept else None
        self._combinations: dict[Hashable, Mapping[str, object]] = {}
        self._per_combination = per_combination
        self._kinds = ColumnKinds()

    def add(self, results: Sequence[TaskResult]) -> None:
        """Add results, in task order."""
        self._waiting += results
        while len(self._waiting) >= BLOCK:
            block, self._waiting = self._waiting[:BLOCK], self._waiting[BLOCK:]
            self._fold(block)

    def _fold(self, results: Sequence[TaskResult]) -> None:
        columns = self._columns(results)
        block = self._block(results, columns["metrics"])
        metrics = max(1, len(self._metric_names))
        self._total.add(block, None, min(KEPT, KEPT_OF_ALL // metrics))
        scenarios = {path: (values, types) for path, values, types in columns["scenario"]}
        nothing = [None] * len(results), {type(None)}
        keyed: list[tuple[Grouping, Sequence[Hashable]]] = []
        for name, grouping in self._group_by.items():
            values, types = scenarios.get((name,), nothing)
            if any(path[0] == name and len(path) > 1 for path in scenarios):  # a nested member
                values = [result.scenario.get(name) for result in results]
            texts = (None if value is None else str(value) for value in values)  # None: in no group of this name
            keyed.append((grouping, values if types == {str} else list(texts)))
        for name, grouping in self._parameters.items():
            values, types = scenarios.get(("params", name), nothing)
            keyed.append((grouping, values if types == {str} else list(map(label_of, values))))
        if self._sweep:
            combinations = [result.task // self._per_combination for result in results]
            keyed.append((self._sweep, combinations))
            if len(self._combinations) < SWEPT:
                for combination, result in zip(combinations, results, strict=True):
                    self._combinations.setdefault(combination, _params_of(result))
        room = KEPT_OF_ALL_IN_GROUPS // (metrics * max(1, len(keyed)))
        for grouping, keys in keyed:
            grouping.add(block, keys, min(KEPT_IN_GROUPS, room))

    def _columns(self, results: Sequence[TaskResult]) -> dict[str, list[BlockColumn]]:
        """Return the columns of a block by nested member; record their kinds, and tally its timing."""
        columns: dict[str, list[BlockColumn]] = {}
        for member in NESTED_COLUMNS:
            rows = [getattr(result, member) for result in results]
            columns[member] = list(columns_of(rows))
            self._kinds.add(rows, member, columns[member])
        for path, values, types in columns["timing"]:
            name = "_".join(path)
            if not types & {int, float, bool} or (name not in self._timing and len(self._timing) >= METRICS):
                continue
            column = self._timing.setdefault(name, GroupedColumn())
            room = min(KEPT, KEPT_OF_ALL // len(self._timing))
            column.add(np.zeros(len(values), np.int64), floats(values, types), room)
        return columns

    def _block(self, results: Sequence[TaskResult], metrics: Sequence[BlockColumn]) -> Block:
        statuses = [result.status for result in results]
        self._status_names += sorted(set(statuses) - set(self._status_names))
        codes = {name: code for code, name in enumerate(self._status_names)}
        status_codes = np.array([codes[status] for status in statuses], np.int64)
        succeeded = np.flatnonzero(status_codes == 0)
        numbers: dict[str, Floats] = {}
        texts: dict[str, NumberedTexts] = {}
        never: dict[str, NDArray[np.bool_]] = {}
        for path, values, types in metrics:
            name = path[0]
            if len(path) > 1 or (name not in self._metric_names and len(self._metric_names) >= METRICS):
                continue
            self._metric_names[name] = None
            if len(succeeded) < len(values):
                values = [values[position] for position in succeeded.tolist()]
            if types & {int, float, bool}:
                numbers[name] = floats(values, types)
                if name in self._never:
                    never[name] = numbers[name] == self._never[name]
                    numbers[name] = np.where(never[name], math.nan, numbers[name])
                self._booleans[name] = self._booleans.get(name, True) and types <= {bool, type(None)}
            if str in types:
                texts[name] = self._outcome_names.setdefault(name, OutcomeNames()).numbered(values)
        units = None if self._units is None else self._units.of(np.array([result.task for result in results]))
        return Block(tuple(self._status_names), status_codes, succeeded, numbers, texts, units, never)

    @property
    def done(self) -> int:
        """Number of results added."""
        return sum(self._total.statuses(0).values()) + len(self._waiting)

    def summary(self) -> dict[str, Any]:
        """Return totals, `timing`, `groups` and `sweep`; complete the last block."""
        self._fold_rest()
        rates = self._total.rates(self._rates())
        result = self._total.summary(0, self._worst, rates=rates, bounds=self._bounds, bootstrap=True)
        if self._timing:
            result["timing"] = {
                name: column.summary(0, penalties=0, worst=None) for name, column in self._timing.items()
            }
        if self._group_by or self._parameters:
            groups = {name: (grouping, sorted(grouping.groups.items())) for name, grouping in self._group_by.items()}
            for name, grouping in self._parameters.items():
                groups[f"params.{name}"] = grouping, list(grouping.groups.items())
            result["groups"] = {
                name: {value: grouping.summary(group, self._worst) for value, group in items}
                for name, (grouping, items) in groups.items()
            }
        if self._sweep:
            result["sweep"] = self.sweep()
        if (columns := self._kinds.by_name()) is not None:
            result["columns"] = columns
        return result

    def sweep(self) -> dict[str, Any]:
        """Return a row for each listed combination, in task order, and whether these are all; complete the last block.

        Intervals are of Wilson for rates, and of the normal approximation for other means of at least FEW scenarios.
        """
        self._fold_rest()
        combinations = self._sweep or Grouping(0)
        rates = combinations.rates(self._rates())
        rows = [
            {"params": self._combinations[combination]}
            | combinations.summary(group, self._worst, rates=rates, bounds=self._bounds)
            for combination, group in combinations.groups.items()
        ]
        return {"rows": rows, "complete": not combinations.unlisted}

    def _rates(self) -> Mapping[str, bool | None]:
        """Return whether each metric is a rate by its declaration; else it is if all its values are true or false."""
        booleans = {name: True for name, boolean in self._booleans.items() if boolean}
        return booleans | {name: rate for name, rate in self._declared_rates.items() if rate is not None}

    def _fold_rest(self) -> None:
        if self._waiting:
            block, self._waiting = self._waiting, []
            self._fold(block)


def _params_of(result: TaskResult) -> Mapping[str, object]:
    params = result.scenario.get("params")
    return params if isinstance(params, dict) else {}


def floats(values: Sequence[object], types: set[type]) -> Floats:
    """Return values as floats; NaN for all that is not a number or beyond every float."""
    if not types - {int, float, bool, type(None)}:
        try:
            return np.array(values, np.float64)
        except OverflowError:
            pass
    return np.array([float_of(value) for value in values], np.float64)
