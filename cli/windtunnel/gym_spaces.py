"""Spaces of Gymnasium from a dataset's description, and their elements as the flat arrays that sessions exchange."""

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from windtunnel.errors import WindtunnelError
from windtunnel.sessions import Refused, Space

#: Of Gymnasium, which has no types for them: a space, an element of one, and what is said of a step.
GymSpace: TypeAlias = Any
Element: TypeAlias = Any
Info = dict[str, Any]
Array = NDArray[Any]
#: Where a space lies within another.
Place = tuple[object, ...]


class SpaceCodec(NamedTuple):
    """A space, and the order of its parts in the flat array, which is not always Gymnasium's own.

    ``keys``: of each Dict, by its place in the space. ``choices``: the first and the last value of a Discrete.
    """

    space: GymSpace
    keys: Mapping[Place, tuple[str, ...]]
    choices: tuple[int, int] | None

    def element(self, values: Element) -> Element:
        """Return the element that an array has; it may be a view of it."""
        return self.elements(np.asarray(values).reshape(-1))

    def elements(self, values: Array) -> Element:
        """Return the elements of the last axis, as Gymnasium batches them; of one, if there is no other axis."""
        if isinstance(self.space, spaces.Box):  # by far the most
            return values.reshape((*values.shape[:-1], *self.space.shape)).astype(self.space.dtype, copy=False)
        elements, _ = self._elements(self.space, values, 0, ())
        return elements

    def _elements(self, space: GymSpace, flat: Array, at: int, place: Place) -> tuple[Element, int]:
        if isinstance(space, spaces.Dict):
            parts = {}
            for key in self.keys[place]:
                parts[key], at = self._elements(space[key], flat, at, (*place, key))
            return {key: parts[key] for key in space.spaces}, at
        if isinstance(space, spaces.Tuple):
            elements = []
            for index, part in enumerate(space.spaces):
                element, at = self._elements(part, flat, at, (*place, index))
                elements.append(element)
            return tuple(elements), at
        if isinstance(space, spaces.Discrete):
            return np.int64(flat[..., at]), at + 1
        end = at + int(np.prod(space.shape))
        return flat[..., at:end].reshape((*flat.shape[:-1], *space.shape)).astype(space.dtype), end

    def flat(self, element: Element) -> NDArray[np.float64]:
        """Return the flat array of an element. Raise Refused, with what was expected, for a value of no choice.

        Numbers of a Box are not compared with its bounds, and floats for a choice are rounded by the simulator: it
        takes what models answer.
        """
        if self.choices is not None and isinstance(element, int | np.integer):
            value = int(element)
            if self.choices[0] <= value <= self.choices[1]:
                return np.array([value], np.float64)
        return np.concatenate([np.zeros(0), *self._arrays(self.space, element, ())])

    def _choose(self, elements: Array) -> bool:
        """Return whether each is a value of a Discrete."""
        if self.choices is None or elements.dtype.kind not in "iu":
            return False
        chosen = elements.tolist()
        return bool(self.choices[0] <= min(chosen) and max(chosen) <= self.choices[1])

    def flats(self, elements: Element, batched: GymSpace, ignored: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return a row for each element of ``batched``, a space of Gymnasium's, zeros where they are ignored.

        Raise Refused, as `flat` does.
        """
        space, count = self.space, len(ignored)
        array = np.asarray(elements) if isinstance(space, spaces.Box | spaces.Discrete) else None
        if array is not None and array.shape == batched.shape and (array.dtype.kind == "f" or self._choose(array)):
            return array.reshape(count, -1).astype(np.float64)
        rows = list(iterate(batched, elements))
        if len(rows) != count:
            raise Refused(f"There are {count} worlds; actions for {len(rows)} came.")
        zeros = np.zeros(self._entries(space))
        return np.stack([zeros if skip else self.flat(row) for row, skip in zip(rows, ignored, strict=True)])

    def _entries(self, space: GymSpace) -> int:
        if isinstance(space, spaces.Dict):
            return sum(map(self._entries, space.spaces.values()))
        if isinstance(space, spaces.Tuple):
            return sum(map(self._entries, space.spaces))
        return int(np.prod(space.shape))

    def _arrays(self, space: GymSpace, element: Element, place: Place) -> Iterator[NDArray[np.float64]]:
        if isinstance(space, spaces.Dict):
            if not isinstance(element, Mapping) or set(element) != set(space.spaces):
                raise Refused(f"The action is a dict of {', '.join(map(repr, space.spaces))}, not {element!r:.80}.")
            for key in self.keys[place]:
                yield from self._arrays(space[key], element[key], (*place, key))
        elif isinstance(space, spaces.Tuple):
            if not isinstance(element, tuple | list) or len(element) != len(space.spaces):
                raise Refused(f"The action is a tuple of {len(space.spaces)} parts, not {element!r:.80}.")
            for index, (part, value) in enumerate(zip(space.spaces, element, strict=True)):
                yield from self._arrays(part, value, (*place, index))
        else:
            array = np.asarray(element)
            whole = array.dtype.kind in "iub" and not isinstance(space, spaces.Box)
            if whole and array.size == int(np.prod(space.shape)) and not space.contains(_fitting(space, array)):
                named = "".join(f"[{part!r}]" for part in place)
                raise Refused(
                    f"The action{named} is {array.tolist()}, which is not an element of {space}{_values(space)}."
                )
            yield np.asarray(array, np.float64).reshape(-1)


class ActionCheck:
    """Refuses actions with an entry that is not finite in the type of the action space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._largest = float(np.finfo(space.dtype).max) if np.dtype(space.dtype).kind == "f" else sys.float_info.max
        self._square = self._largest**2 if self._largest < math.sqrt(sys.float_info.max) else sys.float_info.max

    def holds(self, values: NDArray[np.float64]) -> bool:
        """Return whether a flat array is free of such entries; not always, if they are large.

        The sum of squares is the fastest proof.
        """
        return bool(values.dot(values) <= self._square)

    def __call__(self, values: NDArray[np.float64], whose: str = "") -> None:
        """Raise Refused for such an entry of a flat array."""
        if self.holds(values):
            return
        space = self._space
        for index, value in enumerate(values.tolist()):
            if abs(value) <= self._largest:
                continue
            named = f" ({space.names[index]})" if index < len(space.names) else ""
            fault = f"more than {space.dtype} holds" if math.isfinite(value) else "not a finite number"
            raise Refused(f"The action's entry {index}{named}{whose} is {value}, which is {fault}.")


def _values(space: GymSpace) -> str:
    if not isinstance(space, spaces.Discrete):
        return ""
    return f": a whole number from {space.start} to {space.start + space.n - 1}"


def _fitting(space: GymSpace, array: Array) -> Element:
    if isinstance(space, spaces.Discrete):
        return np.int64(array.reshape(-1)[0])
    return array.reshape(space.shape).astype(space.dtype if array.dtype.kind == "b" else array.dtype)


def codec_of(space: Space) -> SpaceCodec:
    """Return the space of Gymnasium that a description is of."""
    keys: dict[Place, tuple[str, ...]] = {}
    bounds = iter(zip(space.low, space.high, strict=True))
    described = space.gymnasium or {"type": "Box", "shape": space.shape, "dtype": space.dtype}
    if described["type"] == "Box":
        described = {"type": "Box", "shape": space.shape, "dtype": space.dtype}
    made = _made(described, bounds, (), keys)
    first = int(made.start) if isinstance(made, spaces.Discrete) else 0
    return SpaceCodec(made, keys, (first, first + int(made.n) - 1) if isinstance(made, spaces.Discrete) else None)


def _made(
    described: Mapping[str, Any],
    bounds: Iterator[tuple[float | None, float | None]],
    place: Place,
    keys: dict[Place, tuple[str, ...]],
) -> GymSpace:
    kind = described["type"]
    if kind == "Dict":
        parts = [(part["key"], part["space"]) for part in described["spaces"]]
        keys[place] = tuple(key for key, _ in parts)
        return spaces.Dict({key: _made(part, bounds, (*place, key), keys) for key, part in parts})
    if kind == "Tuple":
        return spaces.Tuple(
            [_made(part, bounds, (*place, index), keys) for index, part in enumerate(described["spaces"])]
        )
    if kind == "Discrete":
        next(bounds)
        return spaces.Discrete(described["n"], start=described["start"])
    shape = tuple(described["shape"])
    own = [next(bounds) for _ in range(int(np.prod(shape)))]
    if kind == "MultiBinary":
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if kind == "MultiDiscrete":
        numbers, start = (np.array(described[name]).reshape(shape) for name in ("nvec", "start"))
        return spaces.MultiDiscrete(numbers, start=start)
    if kind != "Box":
        raise WindtunnelError(
            f"This client does not know the space {kind!r} of the dataset. Install a newer `windtunnel`."
        )
    dtype = np.dtype(described["dtype"])
    least, most = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else (-np.inf, np.inf)
    low = np.array([least if bound is None else bound for bound, _ in own], dtype).reshape(shape)
    high = np.array([most if bound is None else bound for _, bound in own], dtype).reshape(shape)
    return spaces.Box(low, high, shape, dtype.type)
