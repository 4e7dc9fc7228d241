"""JSON mapping: observations in JSON as one array of numbers, and an array of numbers as an action in JSON.

Pure functions of declared fields. A field of an observation has a `path`, and may have a `shape` (of nested lists),
`values` (strings, one of which stands for its index), `missing` (a number for null, for a field that is left out, and
for the rest of a list that is shorter) and `mask` (a list of positions stands for ones at these). A field of an action
has a `path`, a `kind` and, by its kind, `values`, `value` or a `shape`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_STEP = re.compile(r"\.?([A-Za-z_][A-Za-z0-9_-]*)|\[(\d{1,6})\]")
#: Stands for a value that is not there.
ABSENT = object()


class DoesNotFit(ValueError):
    """A value of the environment is not what its field declares."""


def path_steps(path: str) -> tuple[str | int, ...]:
    """Return the keys and positions of a path such as ``agents[0].position``. Raises ValueError."""
    steps: list[str | int] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or (position == 0 and not match[0][0].isalpha() and match[0][0] != "_"):
            raise ValueError(f"{path[:80]!r} is not a path such as `agents[0].position`")
        steps.append(match[1] if match[1] is not None else int(match[2]))
        position = match.end()
    if not steps:
        raise ValueError("a path is empty")
    return tuple(steps)


def value_at(value: Any, steps: Sequence[str | int]) -> Any:
    """Return what lies at a path; ABSENT if nothing does."""
    for step in steps:
        if isinstance(step, str):
            value = value.get(step, ABSENT) if isinstance(value, dict) else ABSENT
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else ABSENT
        if value is ABSENT:
            return ABSENT
    return value


@dataclass(frozen=True, slots=True)
class ObservedField:
    """A declared field of observations, ready for use."""

    path: str
    steps: tuple[str | int, ...]
    shape: tuple[int, ...]
    values: Mapping[str, float]
    missing: float | None
    mask: bool

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> "ObservedField":
        """Read the JSON form."""
        missing = declared.get("missing")
        return cls(
            path=declared["path"],
            steps=path_steps(declared["path"]),
            shape=tuple(declared.get("shape") or ()),
            values={text: float(index) for index, text in enumerate(declared.get("values") or ())},
            missing=None if missing is None else float(missing),
            mask=bool(declared.get("mask")),
        )

    @property
    def size(self) -> int:
        """The field's numbers in the array."""
        return math.prod(self.shape)

    def fill(self, observation: Any, target: "NDArray[Any]") -> None:
        """Write the field's numbers; raise DoesNotFit."""
        value = value_at(observation, self.steps)
        if not self.shape:
            target[0] = self._number(value)
            return
        if value is ABSENT or value is None:
            target[:] = self._number(value)
            return
        if self.mask:
            target[self._positions(value)] = 1.0
            return
        flat: list[float] = []
        self._flatten(value, 0, flat)
        target[:] = flat

    def _positions(self, value: Any) -> list[int]:
        if not isinstance(value, list) or not all(
            isinstance(item, int) and not isinstance(item, bool) and 0 <= item < self.shape[0] for item in value
        ):
            raise DoesNotFit(f"`{self.path}` is not a list of positions from 0 to {self.shape[0] - 1}")
        return value

    def _flatten(self, value: Any, depth: int, flat: list[float]) -> None:
        if depth == len(self.shape):
            flat.append(self._number(value))
            return
        size = self.shape[depth]
        fits = isinstance(value, list) and (len(value) == size or (len(value) < size and self.missing is not None))
        if not fits:
            found = f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__
            raise DoesNotFit(f"`{self.path}` is not a nested list of the shape {list(self.shape)}: there is {found}")
        for item in value:
            self._flatten(item, depth + 1, flat)
        if len(value) < size:
            flat += [self._number(None)] * ((size - len(value)) * math.prod(self.shape[depth + 1 :]))

    def _number(self, value: Any) -> float:
        if value is ABSENT or value is None:
            if self.missing is None:
                what = "missing" if value is ABSENT else "null"
                raise DoesNotFit(f"`{self.path}` is {what}; a field that may be has a `missing` number")
            return self.missing
        if self.values:
            if isinstance(value, str) and value in self.values:
                return self.values[value]
            raise DoesNotFit(f"`{self.path}` is {str(value)[:40]!r}, which is none of its `values`")
        if not isinstance(value, int | float):
            raise DoesNotFit(f"`{self.path}` is not a number, but {type(value).__name__}")
        number = float(value) if abs(value) < 1e38 else math.inf
        if not math.isfinite(number):
            raise DoesNotFit(f"`{self.path}` is not a finite number")
        return number


class ObservationMapping:
    """All fields of an observation, in the order of the array."""

    def __init__(self, declared: Sequence[Mapping[str, Any]]) -> None:
        self._fields = [ObservedField.of(field) for field in declared]
        self.size = sum(field.size for field in self._fields)

    def array(self, observation: Any) -> "NDArray[Any]":
        """Return float32[size]; raise DoesNotFit."""
        array = np.zeros(self.size, np.float32)
        start = 0
        for field in self._fields:
            field.fill(observation, array[start : start + field.size])
            start += field.size
        return array


class ActionMapping:
    """All fields of an action. Kinds: number, integer, boolean, choice (one of strings), constant."""

    def __init__(self, declared: Sequence[Mapping[str, Any]]) -> None:
        self._fields = [(field, path_steps(field["path"])) for field in declared]

    def action(self, numbers: Sequence[float]) -> dict[str, Any]:
        """Return the JSON object of an action; ``numbers`` lie within the bounds of their entries."""
        action: dict[str, Any] = {}
        position = 0
        for field, steps in self._fields:
            if field["kind"] == "constant":
                _put(action, steps, field["value"])
                continue
            shape = tuple(field.get("shape") or ())
            count = math.prod(shape)
            values = [_converted(field, number) for number in numbers[position : position + count]]
            position += count
            _put(action, steps, _nested(values, shape))
        return action


def _converted(field: Mapping[str, Any], number: float) -> Any:
    kind = field["kind"]
    if kind == "number":
        return float(number)
    rounded = math.floor(number + 0.5)
    if kind == "boolean":
        return rounded >= 1
    return field["values"][rounded] if kind == "choice" else rounded


def _nested(values: list[Any], shape: Sequence[int]) -> Any:
    if not shape:
        return values[0]
    step = math.prod(shape[1:])
    return [_nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def _put(target: dict[str, Any], steps: Sequence[str | int], value: Any) -> None:
    """Set what lies at a path of names, of objects that are made on the way."""
    for step in steps[:-1]:
        target = target.setdefault(str(step), {})
    target[str(steps[-1])] = value
