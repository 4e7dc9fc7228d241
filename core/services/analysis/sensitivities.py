"""Sensitivities of a simulation: which parameters go with failure, or with a metric, while it runs and afterwards."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from common.errors import Invalid
from core.domain.access.scopes import Caller
from core.domain.results.dependence import finite, metric_values
from core.domain.results.distribution import FAILED, failing
from core.domain.results.parameter_columns import column_of_parameter, distinct_columns
from core.domain.results.result_table import TaskNumbers, sampled
from core.domain.results.scenario_units import ScenarioUnits
from core.domain.results.sensitivity import PlotBin, Sensitivity, failure_sensitivities, metric_sensitivities
from core.domain.results.worst_combinations import FEWEST, worst_combinations
from core.domain.submissions.task_parameters import Parameter
from core.services.analysis.distributions import kind_of_metric
from core.services.analysis.result_tables import ResultTables

#: Most results that are considered. Each parameter sorts all of them.
CONSIDERED = 200_000
#: Least number of scenarios of which a sample has whole ones.
WHOLE = 1000


class Sensitivities:
    """Answers from result tables, which hold each result once; beyond CONSIDERED from a sample of them."""

    def __init__(self, tables: ResultTables) -> None:
        self._tables = tables

    def sensitivity(self, caller: Caller, id: str, metric: str) -> dict[str, object]:
        """Return how each parameter goes with a metric, the strongest first, and the combinations that fail most.

        Raise Invalid for a metric that no result has, and for one with texts.
        """
        parameters = self._tables.parameters(caller, id)
        with self._tables.current(caller, id) as table:
            rows = table.table.rows()
            if kind_of_metric(metric, table, rows) == "category":
                raise Invalid(f"The metric {metric} has texts. Name a metric with numbers, or take `metric={FAILED}`.")
            coverage = table.coverage()
            failed = failing(rows, table.failure)
            by_failure = metric == FAILED and metric not in rows.numbers and metric not in table.worst
            units, bounds = table.units, table.bounds.get(metric)
            values = None if by_failure else metric_values(metric, rows, table.worst, table.failure, table.never)
        # the rows do not change when results are added, so that other requests need not wait for the arithmetic
        tasks = rows.tasks
        chosen = _chosen(tasks, units)
        columns = {name: column_of_parameter(parameter, tasks[chosen]) for name, parameter in parameters.items()}
        aliases = distinct_columns(columns)
        columns = {name: columns[name] for name in aliases}
        failed = failed[chosen]
        of_units = None if units is None else units.of(tasks[chosen])
        swept = {name for name, parameter in parameters.items() if parameter.source == "sweep"}
        with np.errstate(over="ignore", invalid="ignore"):  # of metrics near the largest float
            sensitivities = (
                failure_sensitivities(columns, failed, of_units, swept)
                if values is None
                else metric_sensitivities(columns, values[chosen], of_units, swept, bounds)
            )
        combinations = worst_combinations(columns, failed, of_units)
        return (
            {"metric": metric}
            | coverage
            | {
                "sampled": len(failed),
                "failed": int(failed.sum()),
                "fewest": FEWEST,
                "parameters": [_described(item, parameters, aliases) for item in sensitivities],
                "combinations": [
                    {
                        "values": dict(item.values),
                        "count": item.count,
                        "failures": item.failures,
                        "rate": item.rate,
                        "low": item.low,
                        "high": item.high,
                    }
                    for item in combinations.worst
                ],
                "candidates": combinations.candidates,
            }
        )


def _chosen(tasks: TaskNumbers, units: ScenarioUnits | None) -> NDArray[np.bool_]:
    """Return which tasks are considered: all, or the largest sample by numbers that is small enough.

    Of many scenarios whole ones are chosen, so that values of a swept parameter can be compared within them.
    """
    numbers = tasks if units is None or units.count < WHOLE else units.of(tasks)
    level = 0
    chosen = np.ones(len(tasks), np.bool_)
    while int(chosen.sum()) > CONSIDERED:
        level += 1
        chosen = sampled(numbers, level)
    return chosen


def _described(
    sensitivity: Sensitivity, parameters: Mapping[str, Parameter], aliases: Mapping[str, Sequence[str]]
) -> dict[str, object]:
    parameter = parameters[sensitivity.parameter]
    effect = sensitivity.effect
    return {
        "parameter": parameter.name,
        "aliases": list(aliases[parameter.name]),
        "source": parameter.source,
        "kind": parameter.kind,
        "association": finite(sensitivity.association),
        "effect": {
            "name": sensitivity.kind.value,
            "value": finite(effect.value),
            "low": finite(effect.low),
            "high": finite(effect.high),
        },
        "level": sensitivity.level,
        "picked_from": sensitivity.picked_from,
        "missing": sensitivity.missing,
        "plot": list(map(_plotted, sensitivity.bins)),
    }


def _plotted(bin: PlotBin) -> dict[str, object]:
    document: dict[str, object] = {"label": bin.label}
    if bin.least is not None:
        document |= {"from": bin.least, "to": bin.largest}
    document |= {"count": bin.count, "value": finite(bin.value), "low": finite(bin.low), "high": finite(bin.high)}
    return document
