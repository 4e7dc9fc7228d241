"""Gymnasium's spaces as the arrays of an interface, for the simulators whose environments have such spaces."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from . import structures
from .base import Interface, Space
from .structures import DEEPEST, Part, Parts, Structure, element_of, flattened, whole_limits

#: Names of the spaces whose elements have a fixed number of entries.
SUPPORTED = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


def structure_of_space(space: Any, depth: int = 0) -> Structure:
    """Return what a Gymnasium space is. Raises ValueError for one whose elements have no fixed number of entries."""
    if depth > DEEPEST:
        raise ValueError(f"spaces are nested more than {DEEPEST} times")
    if isinstance(space, spaces.Discrete):
        return structures.discrete(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start).reshape(-1).tolist()
        return structures.multi_discrete(space.nvec.reshape(-1).tolist(), start, space.shape)
    if isinstance(space, spaces.MultiBinary):
        return structures.multi_binary(space.shape)
    if isinstance(space, spaces.Dict):
        return structures.dictionary({key: structure_of_space(part, depth + 1) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return structures.sequence([structure_of_space(part, depth + 1) for part in space.spaces])
    if not isinstance(space, spaces.Box):
        raise ValueError(f"it has a {type(space).__name__}; supported are {', '.join(SUPPORTED)}")
    return structures.box([int(size) for size in space.shape], str(np.dtype(space.dtype)))


def space_of(space: Any, name: str) -> Space:
    """Convert a Gymnasium space to an array: a Discrete is one number, a Dict has the entries of all of its parts."""
    try:
        structure = structure_of_space(space)
    except ValueError as error:
        raise ValueError(f"the {name} space cannot be observed or set: {error}") from None
    lows, highs = bounds(space)
    names = (name,) if isinstance(space, spaces.Discrete) else (f"{name}_{index}" for index in range(structure.size))
    if isinstance(space, spaces.Box):
        dtype = "float32" if np.issubdtype(space.dtype, np.floating) else str(np.dtype(space.dtype))
        shape = tuple(int(size) for size in space.shape) or (1,)
    else:
        dtype, shape = array_type(structure), (structure.size,)
    return Space(
        dtype=dtype,
        shape=shape,
        names=tuple(names),
        units=("",) * structure.size,
        low=tuple(lows.tolist()),
        high=tuple(highs.tolist()),
        gymnasium=structure,
    )


def bounds(space: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the first and the last value of each entry, infinite without a bound."""
    if isinstance(space, spaces.Box):
        return space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        lows, highs = zip(*map(bounds, parts), strict=True)
        return np.concatenate(lows), np.concatenate(highs)
    return whole_limits(structure_of_space(space))


def array_type(structure: Structure) -> str:
    """Return the type of an array with all values of a structure's elements, at least float32."""
    parts = structure.parts if isinstance(structure, Parts) else ()
    if parts:
        return str(np.result_type(*map(array_type, parts)))
    assert isinstance(structure, Part)
    if structure.type == structures.BOX and structure.dtype[0] in "iu":
        return str(np.result_type(np.float32, structure.dtype))
    return "float32"


def check(declared: Interface, actual: Interface) -> None:
    """Compare the dataset's interface with the environment's; raise ValueError if type or shape differ.

    Floats may have any width: the dataset's is that of the observations which a model gets.
    """
    for name in ("observation", "action"):
        expected, found = getattr(declared, name), getattr(actual, name)
        floats = all(np.issubdtype(space.dtype, np.floating) for space in (expected, found))
        if expected.shape != found.shape or (expected.dtype != found.dtype and not floats):
            raise ValueError(
                f"the dataset declares {name}s {expected.dtype}{list(expected.shape)}, "
                f"the environment has {found.dtype}{list(found.shape)}"
            )


def joined(declared: Interface | None, actual: Interface) -> Interface:
    """Return the dataset's interface, or else the environment's, with the environment's spaces.

    Raise ValueError if type or shape differ.
    """
    if declared is None:
        return actual
    check(declared, actual)
    return Interface(
        observation=replace(declared.observation, gymnasium=actual.observation.gymnasium),
        action=replace(declared.action, gymnasium=actual.action.gymnasium),
    )


def observed_array(observation: Any, space: Space) -> NDArray[Any]:
    """Return an environment's observation as the array of its space. Raises DoesNotFit for none of its elements."""
    structure = space.gymnasium
    if structure is not None and structure.type != structures.BOX:
        observation = flattened(structure, observation)
    elif isinstance(observation, np.ndarray) and observation.shape == space.shape and observation.dtype == space.dtype:
        return observation  # which is so at nearly every step
    return np.asarray(observation, space.dtype).reshape(space.shape)


class ActionApplier:
    """Turns a model's actions into an environment's: clipped to the space's bounds, and rounded where it chooses."""

    def __init__(self, interface: Interface, space: Any) -> None:
        self._interface = interface.action
        self._low, self._high = np.array(interface.action.low), np.array(interface.action.high)
        self._structure = structure_of_space(space)
        #: The bounds of a Discrete space, whose one number needs no arrays; None for all others.
        self._discrete: tuple[float, float] | None = None
        if isinstance(space, spaces.Discrete):
            self._discrete = (float(self._low[0]), float(self._high[0]))
        self._whole = np.isfinite(whole_limits(self._structure)[0])

    def __call__(self, action: NDArray[Any]) -> tuple[Any, NDArray[Any], bool]:
        """Return the environment's action, the action within its bounds as a flat array, and whether it was clipped."""
        flat = action.reshape(-1)
        if self._discrete is not None:
            low, high = self._discrete
            value = flat.item(0)
            within = low if value < low else high if value > high else value
            clipped = flat if within == value else np.array([within])
            return math.floor(within + 0.5), clipped, within != value
        clipped = np.clip(flat, self._low, self._high)
        was_clipped = bool((clipped != flat).any())
        if isinstance(self._structure, Part) and self._structure.type == structures.BOX:
            return clipped.reshape(self._structure.shape).astype(self._interface.dtype), clipped, was_clipped
        rounded = np.where(self._whole, np.floor(clipped + 0.5), clipped)
        return element_of(self._structure, rounded), clipped, was_clipped
