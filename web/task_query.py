"""Query of the list of tasks: conditions, order and columns, as the address of the page and its form have them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from werkzeug.datastructures import MultiDict

from web.declared_metrics import metrics_of, score_of
from web.form_fields import number_of

#: The order of the list without another: tasks that are not ok, then the worst scores.
WORST = "worst"
#: Comparisons that the form offers; BETWEEN is two conditions.
BETWEEN = ".."
OPERATORS: Mapping[str, str] = {
    "=": "is",
    "!=": "is not",
    ">=": "is at least",
    "<=": "is at most",
    BETWEEN: "is from … to …",
}
_RANGE = re.compile(r"\s*(\S+?)\s*(?:\.\.|…|,|\bto\b)\s*(\S+)\s*")


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """A view of the tasks. ``where``, ``sort``, ``after``: of the API. ``columns``: None for those of the dataset."""

    where: tuple[str, ...] = ()
    sort: str = WORST
    columns: tuple[str, ...] | None = None
    after: str = ""

    @classmethod
    def read(cls, arguments: MultiDict[str, str]) -> "TaskQuery":
        """Return the query of a request, with what its form adds (`added`)."""
        where = [text for text in arguments.getlist("where") if text]
        by, sort = arguments.get("by"), arguments.get("sort") or WORST
        if by:
            sort = f"-{by}" if arguments.get("order") == "descending" and by != WORST else by
        columns = tuple(name for name in arguments.getlist("columns") if name) if "columns" in arguments else None
        return cls(tuple(dict.fromkeys([*where, *added(arguments)])), sort, columns, arguments.get("after", ""))

    def address(self, **changes: Any) -> str:
        """Return the address of this view with changes, on its first page; relative to that of the list."""
        query = replace(self, **{"after": "", **changes})
        pairs = [("where", text) for text in query.where]
        pairs += [("sort", query.sort)] if query.sort != WORST else []
        if query.columns is not None:
            pairs += [("columns", name) for name in query.columns or ("",)]
        pairs += [("after", query.after)] if query.after else []
        return "?" + urlencode(pairs)

    def without(self, condition: str) -> str:
        """Return the address without a condition."""
        return self.address(where=tuple(text for text in self.where if text != condition))

    def sorted_by(self, column: str) -> str:
        """Return the address sorted by a column, in the other direction if it is sorted by it already."""
        return self.address(sort=f"-{column}" if self.sort == column else column)

    @property
    def column(self) -> str:
        """What the list is sorted by: a column, or WORST."""
        return self.sort.removeprefix("-")

    @property
    def descends(self) -> bool:
        """Whether the greatest value comes first."""
        return self.sort.startswith("-")

    def direction(self, column: str) -> str | None:
        """Return the direction in which it is sorted by a column, as `aria-sort` has it; None for another order."""
        return {column: "ascending", f"-{column}": "descending"}.get(self.sort)


def added(arguments: MultiDict[str, str]) -> list[str]:
    """Return the conditions that the fields `name`, `operator` and `value` of the form add; none without a value.

    `is` with two numbers, `10 to 60`, is their range: a value that is such a text could only be meant by mistake.
    """
    name, operator, value = (arguments.get(field, "").strip() for field in ("name", "operator", "value"))
    if not name or not value:
        return []
    ends = _RANGE.fullmatch(value)
    if ends and (operator == BETWEEN or (operator == "=" and is_range(ends))):
        return [f"{name}>={ends[1]}", f"{name}<={ends[2]}"]
    return [f"{name}{operator if operator in OPERATORS and operator != BETWEEN else '='}{value}"]


def is_range(ends: re.Match[str]) -> bool:
    """Return whether the ends of a range are numbers, and not the parts of one with a comma: `10,5`."""
    return "," not in ends[0] and not any(isinstance(number_of(end), str) for end in ends.groups())


def default_columns(simulation: Mapping[str, Any], dataset: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns of a simulation's tasks without a choice: the outcome, the score, and the error."""
    outcome = ((simulation["answer"] or {}).get("failures") or {}).get("metric")
    score = score_of(dataset)
    return tuple(
        ["status", *(f"metrics.{name}" for name in dict.fromkeys([outcome, score]) if name is not None), "error"]
    )


def offered_columns(
    simulation: Mapping[str, Any], dataset: Mapping[str, Any], parameters: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Return the columns that can be shown, with their titles: those that a result line has."""
    swept = [item["name"] for item in parameters if item["source"] == "sweep"]
    groups = {f"scenario.{name}": name for name in dataset.get("group_by", ())}
    repeated = {"scenario.repeat": "repetition"} if simulation["spec"].get("repeat", 1) > 1 else {}
    return (
        {"status": "status"}
        | groups
        | {f"scenario.{name}": name for name in swept}
        | repeated
        | metric_titles(simulation, dataset)
        | {"timing.seconds": "seconds to simulate", "error": "error"}
    )


def compared_names(
    simulation: Mapping[str, Any], dataset: Mapping[str, Any], parameters: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, str]]:
    """Return the names that conditions and orders can have, with titles, by kind."""
    return {
        "Result": {"failed": "failure", "status": "status", "error": "error", "task": "number of the task"},
        "Parameters": {item["name"]: item["name"] for item in parameters},
        "Metrics": metric_titles(simulation, dataset),
    }


def metric_titles(simulation: Mapping[str, Any], dataset: Mapping[str, Any]) -> dict[str, str]:
    """Return the titles of the metrics by the names of their columns: the declared ones, then those with values."""
    declared = metrics_of(dataset)
    titles = {name: metric.get("title") or name for name, metric in declared.items()}
    return {f"metrics.{name}": titles.get(name, name) for name in [*declared, *simulation["metrics"]]}


def known_values(simulation: Mapping[str, Any], parameters: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return values that a condition may be about: of categories, outcomes and statuses."""
    categories = [item["values"] for item in parameters if item["kind"] == "category" and "values" in item]
    failures = (simulation["answer"] or {}).get("failures") or {"outcomes": {}}
    statuses = ("ok", "failed", "crashed", "timed_out", "invalid", "true", "false")
    return [
        *dict.fromkeys([*(str(value) for values in categories for value in values), *failures["outcomes"], *statuses])
    ]


def value_of(result: Mapping[str, Any], column: str) -> Any:
    """Return the value of a column of a result; None if it has none. A name may have dots."""
    members: Any = result
    path = column
    while isinstance(members, Mapping):
        if path in members:
            return members[path]
        head, _, path = path.partition(".")
        members = members.get(head)
    return None
