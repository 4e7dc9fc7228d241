"""Distributions of a simulation's metrics and their dependence on parameters, while it runs and afterwards."""

from collections.abc import Sequence

from common.errors import Invalid
from common.near_names import name_list, near_names, suggestion
from core.domain.access.scopes import Caller
from core.domain.results.dependence import (
    VALUES_OF_AXIS,
    axis_of,
    heat_map,
    metric_values,
    outcomes_by_group,
    points,
    statistics_by_group,
)
from core.domain.results.distribution import FAILED
from core.domain.results.rates import declared_rates
from core.domain.results.result_table import TableRows
from core.domain.submissions.task_parameters import Parameter, find_parameter
from core.services.analysis.result_tables import ResultTables, SimulationTable
from core.store import simulations
from core.store.database import Database


class Distributions:
    """Answers from result tables: the cost of a request grows with the results that are new, not with all of them."""

    def __init__(self, database: Database, tables: ResultTables) -> None:
        self._database = database
        self._tables = tables

    def parameters(self, caller: Caller, id: str) -> dict[str, object]:
        """Return the parameters of a simulation's tasks: of its scenarios, and of its sweep."""
        return {"parameters": [parameter.described() for parameter in self._tables.parameters(caller, id).values()]}

    def distributions(self, caller: Caller, id: str) -> dict[str, object]:
        """Return the distribution of each metric over the results so far."""
        with self._tables.current(caller, id) as table:
            rows = table.distributions.update(table.table)
            document = table.distributions.described(rows)
            coverage = table.coverage()
        with self._database.read() as c:
            total, done, failed = simulations.counts(c, id)
        return {"tasks": {"total": total, "done": done, "failed": failed}} | coverage | document

    def dependence(self, caller: Caller, id: str, metric: str, names: Sequence[str]) -> dict[str, object]:
        """Return how a metric depends on one or two parameters. Raise Invalid for unknown names.

        One parameter: statistics by value or bin, and for a number also a sample of points. Two: a heat map.
        """
        known = self._tables.parameters(caller, id)
        parameters = [find_parameter(known, name) for name in names]
        if len({parameter.name for parameter in parameters}) < len(parameters):
            raise Invalid(f"`parameter` names {parameters[0].name} twice; name two different ones, or one.")
        with self._tables.current(
            caller, id
        ) as table:  # also for the arithmetic, whose arrays are as large as the table
            return table.coverage() | _dependence(table, table.table.rows(), metric, parameters)


def _dependence(
    table: SimulationTable, rows: TableRows, metric: str, parameters: Sequence[Parameter]
) -> dict[str, object]:
    kind = kind_of_metric(metric, table, rows)
    document: dict[str, object] = {"metric": metric, "kind": kind}
    if kind == "category" and len(parameters) > 1:
        raise Invalid(
            f"The metric {metric} has texts, and a heat map has means of numbers. Leave out one `parameter`, or take"
            f" `metric={FAILED}`."
        )
    if len(parameters) > 1:
        first, second = (axis_of(parameter, VALUES_OF_AXIS) for parameter in parameters)
        document["parameters"] = [first.described(), second.described()]
        values = metric_values(metric, rows, table.worst, table.failure, table.never)
        return document | heat_map(first, second, rows.tasks, values)
    axis = axis_of(parameters[0])
    document["parameters"] = [axis.described()]
    if kind == "category":
        return document | {"groups": outcomes_by_group(axis, rows, metric)}
    values = metric_values(metric, rows, table.worst, table.failure, table.never)
    document["groups"] = statistics_by_group(
        axis,
        rows.tasks,
        values,
        _declared_rate(metric, table, rows),
        table.bounds.get(metric),
        table.units,
    )
    if axis.parameter.kind == "number":
        document["points"] = points(axis.parameter, rows, values)
    return document


def _declared_rate(metric: str, table: SimulationTable, rows: TableRows) -> bool | None:
    """Return whether a metric is a rate: by the dataset's declaration, or because it has no values but true and false.

    None if nothing says so. The share of failures is a rate.
    """
    if metric == FAILED and metric not in rows.numbers and metric not in table.worst:
        return True
    declared = declared_rates(table.declared.metrics).get(metric)
    return True if declared is None and metric in rows.booleans else declared


def kind_of_metric(metric: str, table: SimulationTable, rows: TableRows) -> str:
    """Return whether a metric has numbers or texts. Raise Invalid with the nearest names for an unknown metric."""
    if metric in rows.numbers:
        return "number"
    if metric in rows.texts or (table.failure is not None and metric == table.failure.metric):
        return "category"
    known = [*dict.fromkeys((*table.worst, *rows.numbers, *rows.texts, FAILED))]
    if metric in known:
        return "number"
    near = near_names(metric, known)
    raise Invalid(
        f"These results have no metric {metric[:100]!r}. " + suggestion(near, f"There are: {name_list(known)}."),
        nearest=near,
    )
