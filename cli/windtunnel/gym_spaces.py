"""Spaces of Gymnasium from a dataset's description, and their elements as the flat arrays that sessions exchange."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from windtunnel.errors import WindtunnelError
from windtunnel.sessions import Refused, Space


class SpaceCodec(NamedTuple):
    """A space, and the order of its parts in the flat array, which is not always Gymnasium's own.

    ``keys``: of each Dict, by its place in the space.
    """

    space: Any
    keys: Mapping[tuple[Any, ...], tuple[str, ...]]

    def element(self, values: Any) -> Any:
        """Return the element that a flat array has."""
        element, _ = self._element(self.space, np.asarray(values), 0, ())
        return element

    def _element(self, space: Any, flat: NDArray[Any], at: int, place: tuple[Any, ...]) -> tuple[Any, int]:
        if isinstance(space, spaces.Dict):
            parts = {}
            for key in self.keys[place]:
                parts[key], at = self._element(space[key], flat, at, (*place, key))
            return {key: parts[key] for key in space.spaces}, at
        if isinstance(space, spaces.Tuple):
            elements = []
            for index, part in enumerate(space.spaces):
                element, at = self._element(part, flat, at, (*place, index))
                elements.append(element)
            return tuple(elements), at
        if isinstance(space, spaces.Discrete):
            return np.int64(flat[at]), at + 1
        end = at + int(np.prod(space.shape))
        return flat[at:end].reshape(space.shape).astype(space.dtype), end

    def flat(self, element: Any) -> NDArray[np.float64]:
        """Return the flat array of an element. Raise Refused, with what was expected, for a value of no choice.

        Numbers of a Box are not compared with its bounds, and floats for a choice are rounded by the simulator: it
        takes what models answer.
        """
        return np.concatenate([np.zeros(0), *self._arrays(self.space, element, ())])

    def _arrays(self, space: Any, element: Any, place: tuple[Any, ...]) -> Iterator[NDArray[np.float64]]:
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


def _values(space: Any) -> str:
    if not isinstance(space, spaces.Discrete):
        return ""
    return f": a whole number from {space.start} to {space.start + space.n - 1}"


def _fitting(space: Any, array: NDArray[Any]) -> Any:
    if isinstance(space, spaces.Discrete):
        return np.int64(array.reshape(-1)[0])
    return array.reshape(space.shape).astype(space.dtype if array.dtype.kind == "b" else array.dtype)


def codec_of(space: Space) -> SpaceCodec:
    """Return the space of Gymnasium that a description is of."""
    keys: dict[tuple[Any, ...], tuple[str, ...]] = {}
    bounds = iter(zip(space.low, space.high, strict=True))
    described = space.gymnasium or {"type": "Box", "shape": space.shape, "dtype": space.dtype}
    if described["type"] == "Box":
        described = {"type": "Box", "shape": space.shape, "dtype": space.dtype}
    return SpaceCodec(_made(described, bounds, (), keys), keys)


def _made(
    described: Mapping[str, Any],
    bounds: Iterator[tuple[float | None, float | None]],
    place: tuple[Any, ...],
    keys: dict[tuple[Any, ...], tuple[str, ...]],
) -> Any:
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
