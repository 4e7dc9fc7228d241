"""Structures: what Gymnasium calls a space (Discrete, Dict, ...), whose values an interface has as one flat array.

The array is what models and simulators exchange. Its entries are those of the parts in their order: one number for a
Discrete, the elements in C order for all others. So a structure changes no byte of an exchange.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Types of parts that are arrays, and of those that consist of parts.
BOX, DISCRETE, MULTI_DISCRETE, MULTI_BINARY = "Box", "Discrete", "MultiDiscrete", "MultiBinary"
DICT, TUPLE = "Dict", "Tuple"
#: Structures in each other, at most.
DEEPEST = 8

Structure = Union["Part", "Parts"]


class DoesNotFit(ValueError):
    """A value is not an element of a space; the text says what was expected."""


@dataclass(frozen=True, slots=True)
class Part:
    """A Box, Discrete, MultiDiscrete or MultiBinary. A Box has no bounds here: its entries have them.

    ``n`` and ``start``: of each element, the number of values and the first one; empty for a Box.
    """

    type: str
    shape: tuple[int, ...]
    dtype: str
    n: tuple[int, ...] = ()
    start: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return the space as Gymnasium writes it."""
        if self.type == DISCRETE:
            return f"Discrete({self.n[0]}{f', start={self.start[0]}' if self.start[0] else ''})"
        if self.type == MULTI_BINARY:
            return f"MultiBinary({self.shape[0] if len(self.shape) == 1 else list(self.shape)})"
        if self.type == MULTI_DISCRETE:
            return f"MultiDiscrete({list(self.n)}{f', start={list(self.start)}' if any(self.start) else ''})"
        return f"Box({self.dtype}{list(self.shape)})"

    @property
    def size(self) -> int:
        """Entries of the flat array."""
        return math.prod(self.shape)

    def describe(self) -> dict[str, Any]:
        """Return the JSON form."""
        described: dict[str, Any] = {"type": self.type}
        if self.type == DISCRETE:
            return described | {"n": self.n[0], "start": self.start[0]}
        described["shape"] = list(self.shape)
        if self.type == MULTI_DISCRETE:
            described |= {"nvec": list(self.n), "start": list(self.start)}
        return described if self.type == MULTI_BINARY else described | {"dtype": self.dtype}


@dataclass(frozen=True, slots=True)
class Parts:
    """A Dict, or a Tuple, whose keys are empty."""

    type: str
    keys: tuple[str, ...]
    parts: tuple[Structure, ...]

    def __str__(self) -> str:
        """Return the space as Gymnasium writes it."""
        if self.type == TUPLE:
            return f"Tuple({', '.join(map(str, self.parts))})"
        return f"Dict({', '.join(f'{key!r}: {part}' for key, part in zip(self.keys, self.parts, strict=True))})"

    @property
    def size(self) -> int:
        """Entries of the flat array."""
        return sum(part.size for part in self.parts)

    def describe(self) -> dict[str, Any]:
        """Return the JSON form: a list, because the order of an object's members need not be kept."""
        if self.type == TUPLE:
            return {"type": TUPLE, "spaces": [part.describe() for part in self.parts]}
        spaces = [{"key": key, "space": part.describe()} for key, part in zip(self.keys, self.parts, strict=True)]
        return {"type": DICT, "spaces": spaces}


def box(shape: Sequence[int], dtype: str = "float32") -> Part:
    """Return an array of numbers."""
    return Part(BOX, tuple(shape), dtype)


def discrete(n: int, start: int = 0) -> Part:
    """Return a choice of ``n`` whole numbers from ``start`` on."""
    return Part(DISCRETE, (), "int64", (n,), (start,))


def multi_discrete(n: Sequence[int], start: Sequence[int] | None = None, shape: Sequence[int] | None = None) -> Part:
    """Return an array of choices."""
    starts = tuple(start) if start is not None else (0,) * len(n)
    return Part(MULTI_DISCRETE, tuple(shape) if shape is not None else (len(n),), "int64", tuple(n), starts)


def multi_binary(shape: Sequence[int]) -> Part:
    """Return an array of zeros and ones."""
    return Part(MULTI_BINARY, tuple(shape), "int8", (2,) * math.prod(shape), (0,) * math.prod(shape))


def dictionary(parts: Mapping[str, Structure]) -> Parts:
    """Return named parts."""
    return Parts(DICT, tuple(parts), tuple(parts.values()))


def sequence(parts: Sequence[Structure]) -> Parts:
    """Return parts in an order."""
    return Parts(TUPLE, (), tuple(parts))


def structure_of(described: Mapping[str, Any], depth: int = 0) -> Structure:
    """Read the JSON form. Raises ValueError."""
    if depth > DEEPEST:
        raise ValueError(f"spaces are nested more than {DEEPEST} times")
    kind = described["type"]
    if kind == BOX:
        return box(described["shape"], described["dtype"])
    if kind == DISCRETE:
        return discrete(described["n"], described["start"])
    if kind == MULTI_DISCRETE:
        return multi_discrete(described["nvec"], described["start"], described["shape"])
    if kind == MULTI_BINARY:
        return multi_binary(described["shape"])
    if kind == TUPLE:
        return sequence([structure_of(part, depth + 1) for part in described["spaces"]])
    if kind == DICT:
        return dictionary({part["key"]: structure_of(part["space"], depth + 1) for part in described["spaces"]})
    raise ValueError(f"there is no space {kind!r}")


def equal(first: Structure, second: Structure) -> bool:
    """Whether two structures have the same elements; the order of a Dict's keys is none of theirs."""
    if isinstance(first, Part) or isinstance(second, Part) or first.type == TUPLE or second.type == TUPLE:
        if isinstance(first, Parts) and isinstance(second, Parts) and first.type == second.type:
            pairs = zip(first.parts, second.parts, strict=False)
            return len(first.parts) == len(second.parts) and all(equal(one, other) for one, other in pairs)
        return first == second
    ours, theirs = (dict(zip(each.keys, each.parts, strict=True)) for each in (first, second))
    return ours.keys() == theirs.keys() and all(equal(part, theirs[key]) for key, part in ours.items())


def element_of(structure: Structure, flat: "NDArray[Any]") -> Any:
    """Return the element that a flat array has: an int, an array, a dict or a tuple, as in Gymnasium."""
    element, _ = _element(structure, flat, 0)
    return element


def _element(structure: Structure, flat: "NDArray[Any]", at: int) -> tuple[Any, int]:
    import numpy as np

    if isinstance(structure, Part):
        end = at + structure.size
        if structure.type == DISCRETE:
            return np.int64(flat[at]), end
        return flat[at:end].reshape(structure.shape).astype(structure.dtype), end
    elements = []
    for part in structure.parts:
        element, at = _element(part, flat, at)
        elements.append(element)
    return (tuple(elements) if structure.type == TUPLE else dict(zip(structure.keys, elements, strict=True))), at


def flattened(structure: Structure, element: Any) -> "NDArray[np.float64]":
    """Return the flat array of an element. Raises DoesNotFit for what the space does not have.

    Numbers of a Box are not compared with its bounds: a simulator clips them.
    """
    import numpy as np

    return np.concatenate([np.zeros(0), *_arrays(structure, element, "")])


def _arrays(structure: Structure, element: Any, where: str) -> "list[NDArray[np.float64]]":
    import numpy as np

    if isinstance(structure, Part):
        return [_checked(structure, element, where)]
    named = f" at {where}" if where else ""
    if structure.type == TUPLE:
        if not isinstance(element, tuple | list) or len(element) != len(structure.parts):
            raise DoesNotFit(f"{_shown(element)}{named} is not a tuple of {len(structure.parts)} parts, {structure}")
        members: list[tuple[str, Any]] = [(f"[{place}]", value) for place, value in enumerate(element)]
    else:
        if not isinstance(element, Mapping) or set(element) != set(structure.keys):
            found = f"a dict of {', '.join(map(repr, element))}" if isinstance(element, Mapping) else _shown(element)
            raise DoesNotFit(f"{found}{named} is not a dict of {', '.join(map(repr, structure.keys))}, {structure}")
        members = [(f"[{key!r}]", element[key]) for key in structure.keys]
    arrays: list[NDArray[np.float64]] = []
    for part, (place, value) in zip(structure.parts, members, strict=True):
        arrays += _arrays(part, value, where + place)
    return arrays


def _checked(part: Part, element: Any, where: str) -> "NDArray[np.float64]":
    import numpy as np

    named = f" at {where}" if where else ""
    try:
        array = np.asarray(element)
        numbers = array.astype(np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise DoesNotFit(f"{_shown(element)}{named} is not numbers; the space is {part}: {expected(part)}") from None
    if element is None or array.dtype.kind not in "fiub" or numbers.size != part.size:
        raise DoesNotFit(f"{_shown(element)}{named} is not an element of {part}: {expected(part)}")
    if part.type != BOX and (place := _outside(part, numbers)) is not None:
        raise DoesNotFit(f"{numbers[place]:g}{named} is not an element of {part}: {expected(part, place)}")
    return numbers


def _outside(part: Part, numbers: "NDArray[np.float64]") -> int | None:
    """Return the place of the first number that is none of its choices."""
    import numpy as np

    low, high = whole_limits(part)
    outside = ~((numbers >= low) & (numbers <= high) & (numbers == np.rint(numbers)))
    return int(np.argmax(outside)) if outside.any() else None


def expected(part: Part, place: int = 0) -> str:
    """Return in words what a part takes; of several choices, what the one at a place takes."""
    if part.type == BOX:
        return f"{part.size} number{'s' if part.size != 1 else ''}"
    first, last = part.start[place], part.start[place] + part.n[place] - 1
    if part.type == DISCRETE:
        return f"a whole number from {first} to {last}"
    return f"{part.size} whole numbers, entry {place} from {first} to {last}"


def _shown(element: Any) -> str:
    return f"{element!r:.60}" if isinstance(element, str | int | float | bool | None) else type(element).__name__


@functools.cache  # called at every step
def whole_limits(structure: Structure) -> "tuple[NDArray[np.float64], NDArray[np.float64]]":
    """Return the first and the last value of each entry that is a choice; infinite for numbers of a Box."""
    import numpy as np

    if isinstance(structure, Parts):
        limits = [whole_limits(part) for part in structure.parts]
        lows, highs = ([np.zeros(0), *bounds] for bounds in zip(*limits, strict=True)) if limits else ([], [])
        return np.concatenate(lows), np.concatenate(highs)
    if structure.type == BOX:
        return np.full(structure.size, -np.inf), np.full(structure.size, np.inf)
    start = np.array(structure.start, np.float64)
    return start, start + np.array(structure.n, np.float64) - 1
