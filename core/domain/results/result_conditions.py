"""Conditions on results: comparisons of a column, a parameter or a failure with a value, as clients write them.

Conditions are combined: a result meets all of them. Several equalities of one name are alternatives.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.errors import Invalid
from common.near_names import name_list, near_names, suggestion
from core.domain.results.declared_results import declared_results
from core.domain.results.distribution import FAILED
from core.domain.results.line_values import decode_head, is_column, reader_of
from core.domain.results.result_table import TaskNumbers
from core.domain.submissions.task_parameters import Parameter, find_parameter, label_of

#: Most conditions of a request.
CONDITIONS = 20
_FORM = re.compile(r"([^=<>!]+)(<=|>=|!=|=|<|>)(.*)")
#: Comparisons of two numbers, and of an array of them.
_ORDERS: Mapping[str, tuple[Callable[[float, float], bool], np.ufunc]] = {
    "<": (operator.lt, np.less),
    "<=": (operator.le, np.less_equal),
    ">": (operator.gt, np.greater),
    ">=": (operator.ge, np.greater_equal),
}
_TRUTHS: Mapping[str, bool] = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison. ``operator``: `=`, `!=`, `<`, `<=`, `>` or `>=`. ``value``: as the client wrote it."""

    name: str
    operator: str
    value: str

    @classmethod
    def read(cls, text: str) -> "Condition":
        """Return the condition that a client wrote, such as `street=arterial` or `metrics.score<50`; raise Invalid."""
        form = _FORM.fullmatch(text)
        if form is None:
            raise Invalid(
                f"`where` is a comparison such as `street=arterial` or `metrics.score<50`; not {text[:100]!r}."
            )
        name, sign, value = form.groups()
        condition = cls(name.strip(), sign, value.strip())
        if sign in _ORDERS:
            condition.number()
        return condition

    def number(self) -> float:
        """Return the value as a number; raise Invalid."""
        try:
            return float(self.value)
        except ValueError:
            raise Invalid(
                f"`{self.operator}` compares numbers: write `{self.name}{self.operator}0.5`, not {self.value[:100]!r}."
            ) from None

    def meets(self, value: object) -> bool:
        """Return whether a value meets it; a value that is missing, or has no order, is only unequal."""
        if self.operator in _ORDERS:
            return isinstance(value, int | float) and _ORDERS[self.operator][0](value, self.number())
        return self._equals(value) == (self.operator == "=")

    def _equals(self, value: object) -> bool:
        if isinstance(value, bool):
            return _TRUTHS.get(self.value) is value
        if isinstance(value, int | float):
            try:
                return float(self.value) == value
            except ValueError:
                return False
        return value is not None and self.value == label_of(value)


#: Conditions on one name: any of the equalities, and all the others.
_Group = tuple[Sequence[Condition], Sequence[Condition]]


class ResultFilter:
    """Chooses result lines by conditions. A condition on a parameter needs the task's number only."""

    def __init__(
        self,
        conditions: Sequence[Condition],
        *,
        parameters: Callable[[], Mapping[str, Parameter]],
        definition: Mapping[str, object],
        columns: Mapping[str, str] | None,
    ) -> None:
        """Raise Invalid for a name that the results do not have, and for a value that no task has.

        ``parameters``: returns the simulation's. ``columns``: those of the tables, None if they are not known yet.
        """
        self._of_tasks: list[tuple[Parameter, _Group]] = []
        self._of_lines: list[tuple[Callable[[bytes], object], _Group]] = []
        declared = {f"metrics.{metric.name}" for metric in declared_results(definition).metrics}
        for name, group in _grouped(conditions).items():
            if name == FAILED:
                self._of_lines.append((_failure_reader(definition), group))
            elif is_column(name):
                if columns is not None and name not in columns and name not in declared:
                    known = sorted({*columns, *declared})
                    near = near_names(name, known)
                    metrics = [name for name in known if name.startswith("metrics.")] or known
                    raise Invalid(
                        f"`where` names no column of these results: {name[:100]!r}. "
                        + suggestion(near, f"There are: {name_list(metrics)}."),
                        nearest=near,
                    )
                self._of_lines.append((_value_reader(name), group))
            else:
                parameter = find_parameter(parameters(), name)
                self._of_tasks.append((parameter, group))
        self._chosen_tasks(np.zeros(0, np.int64))  # refuses an unknown value before the first byte is sent

    def chosen(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return the lines that meet the conditions; ``lines``: of consecutive tasks."""
        if not lines:
            return []
        if self._of_tasks:
            first = decode_head(lines[0]).task
            kept = np.flatnonzero(self._chosen_tasks(np.arange(first, first + len(lines))))
            lines = [lines[position] for position in kept.tolist()]
        return [line for line in lines if self._meets(line)] if self._of_lines else list(lines)

    def _chosen_tasks(self, tasks: TaskNumbers) -> NDArray[np.bool_]:
        chosen = np.ones(len(tasks), np.bool_)
        for parameter, (equalities, others) in self._of_tasks:
            if equalities:
                chosen &= np.any([parameter.having(tasks, item.value) for item in equalities], axis=0)
            for item in others:
                chosen &= _compared(parameter, tasks, item)
        return chosen

    def _meets(self, line: bytes) -> bool:
        for read, (equalities, others) in self._of_lines:
            value = read(line)
            if equalities and not any(item.meets(value) for item in equalities):
                return False
            if not all(item.meets(value) for item in others):
                return False
        return True


def _failure_reader(definition: Mapping[str, object]) -> Callable[[bytes], object]:
    """Return the function that tells whether a line is a failure."""
    failure = declared_results(definition).failure
    if failure is None:
        return lambda line: decode_head(line).status != "ok"
    read, bad = reader_of(f"metrics.{failure.metric}"), failure.outcomes

    def failed(line: bytes) -> bool:
        _, status, outcome = read(line)
        return status != "ok" or outcome in bad

    return failed


def _value_reader(column: str) -> Callable[[bytes], object]:
    read = reader_of(column)
    return lambda line: read(line).value


def _grouped(conditions: Sequence[Condition]) -> dict[str, _Group]:
    return {
        name: (
            [item for item in conditions if item.name == name and item.operator == "="],
            [item for item in conditions if item.name == name and item.operator != "="],
        )
        for name in dict.fromkeys(item.name for item in conditions)
    }


def _compared(parameter: Parameter, tasks: TaskNumbers, condition: Condition) -> NDArray[np.bool_]:
    if condition.operator == "!=":
        return ~parameter.having(tasks, condition.value)
    if parameter.kind != "number":
        raise Invalid(f"{parameter.name} has no order: its values are texts. Compare it by `=` or `!=`.")
    compared: NDArray[np.bool_] = _ORDERS[condition.operator][1](parameter.of(tasks), condition.number())
    return compared
