"""Parameters of tasks: the fields of their scenarios and the swept parameters, as columns that a task number selects.

The plan of a simulation repeats its scenarios, and combines them with the values of its sweep, in a fixed order; so a
short table of values and a stride give the value of any task.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from common.errors import Invalid
from common.near_names import name_list, near_names, suggestion

Floats = NDArray[np.float64]
#: Values of a parameter: numbers, or positions of categories.
Values = Floats | NDArray[np.int32]
TaskNumbers = NDArray[np.int32] | NDArray[np.int64]

#: Most fields of scenarios that are parameters.
FIELDS = 100
#: Fields of a scenario that name it.
_NAMING = frozenset({"index", "name"})
#: Most values of a parameter that a list of parameters has.
LISTED = 100
#: Most values that are compared with a misspelt value.
COMPARED = 1000


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter. ``source``: `scenario` or `sweep`. ``kind``: `number` or `category`.

    The value of a task is ``table[task // stride % len(table)]``: a number, NaN for none; or a position in ``values``,
    -1 for none. ``values``: the different numbers, ascending, or the categories in order of appearance.
    """

    name: str
    source: str
    kind: str
    table: Values
    stride: int
    values: Sequence[object]

    def of(self, tasks: TaskNumbers) -> Values:
        """Return the values of tasks."""
        values: Values = self.table[tasks // self.stride % len(self.table)]
        return values

    def value(self, task: int) -> object:
        """Return the value of a task: a number or a category; None for none."""
        value = self.table[task // self.stride % len(self.table)].item()
        if self.kind == "category":
            return self.values[value] if value >= 0 else None
        return plain(value) if value == value else None

    def having(self, tasks: TaskNumbers, text: str) -> NDArray[np.bool_]:
        """Return which tasks have a value, as a client writes it. Raise Invalid for a value that no task has."""
        known = list(map(label_of, self.values))
        position = known.index(text) if text in known else self._position(text)
        if position is None:
            near = near_names(text, known[:COMPARED])
            raise Invalid(
                f"No task has {self.name}={text[:100]!r}. " + suggestion(near, f"There are: {name_list(known)}."),
                nearest=near,
            )
        chosen: NDArray[np.bool_] = self.of(tasks) == (position if self.kind == "category" else self.values[position])
        return chosen

    def _position(self, text: str) -> int | None:
        """Return the position of a number that is written in another way, such as 1e3."""
        try:
            return list(self.values).index(float(text)) if self.kind == "number" else None
        except ValueError:
            return None

    def described(self) -> dict[str, object]:
        """Return the parameter with its range or values, for clients."""
        document: dict[str, object] = {"name": self.name, "source": self.source, "kind": self.kind}
        document["distinct"] = len(self.values)
        if len(self.values) <= LISTED:
            document["values"] = list(self.values)
        if self.kind == "number":
            document |= {"low": self.values[0], "high": self.values[-1]}
        return document


def parameter_of(name: str, source: str, values: Sequence[object], stride: int) -> Parameter | None:
    """Return the parameter with these values, None for no value; None if it has no value at all."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    if all(type(value) in (int, float) for value in present):
        table = np.array([float_of(value) for value in values])
        finite = np.unique(table[np.isfinite(table)])
        if len(finite):
            return Parameter(name, source, "number", table, stride, [plain(number) for number in finite.tolist()])
    labels = [None if value is None else label_of(value) for value in values]
    codes = {label: code for code, label in enumerate(dict.fromkeys(label for label in labels if label is not None))}
    table = np.array([-1 if label is None else codes[label] for label in labels], np.int32)
    return Parameter(name, source, "category", table, stride, list(codes))


def label_of(value: object) -> str:
    """Return the name of a category, as the groups of a summary have it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def plain(number: float) -> int | float:
    """Return a whole number as an integer, as a scenario's line has it."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def float_of(value: object) -> float:
    """Return a number; NaN for all that is not one, and for a number that is beyond every float."""
    try:
        return float(value) if isinstance(value, int | float) else float("nan")
    except OverflowError:
        return float("nan")


def scenario_parameters(scenarios: Iterable[Mapping[str, object]], positions: Sequence[int]) -> Iterator[Parameter]:
    """Yield the parameters of scenarios; members of objects have dotted names, and lists are left out.

    ``scenarios``: those of the dataset, from index 0 on. ``positions``: the indices of a plan's scenarios, in order.
    """
    columns: dict[str, list[object]] = {}
    count = 0
    for count, scenario in enumerate(scenarios, 1):
        for name, value in _leaves(scenario, ""):
            column = columns.get(name)
            if column is None:
                if len(columns) >= FIELDS:
                    continue
                column = columns[name] = []
            column += [None] * (count - 1 - len(column))
            column.append(value)
    for name, column in columns.items():
        column += [None] * (count - len(column))
        values = [column[index] if index < count else None for index in positions]
        if (parameter := parameter_of(name, "scenario", values, 1)) is not None:
            yield parameter


def _leaves(members: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in members.items():
        if not prefix and name in _NAMING:
            continue
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif value is not None and not isinstance(value, list):
            yield prefix + name, value


def swept_parameters(sweep: Mapping[str, Sequence[object]], per_combination: int) -> Iterator[Parameter]:
    """Yield the parameters of a sweep as `params.NAME`; ``per_combination``: tasks with equal values of all of them."""
    stride = per_combination
    strides = {}
    for name in reversed(list(sweep)):  # the last parameter changes fastest
        strides[name] = stride
        stride *= len(sweep[name])
    for name, values in sweep.items():
        if (parameter := parameter_of(f"params.{name}", "sweep", values, strides[name])) is not None:
            yield parameter


def find_parameter(parameters: Mapping[str, Parameter], name: str) -> Parameter:
    """Return a parameter by name; a swept parameter also without its prefix. Raise Invalid with the nearest names."""
    parameter = parameters.get(name) or parameters.get(f"params.{name}")
    if parameter is None:
        if not parameters:
            raise Invalid(
                f"This simulation has no parameter {name[:100]!r}, and no other: its scenarios differ in their seeds"
                " alone, and it has no sweep. Submit it with a `sweep`."
            )
        near = near_names(name, parameters)
        raise Invalid(
            f"This simulation has no parameter {name[:100]!r}. "
            + suggestion(near, f"There are: {name_list(parameters)}."),
            nearest=near,
        )
    return parameter
