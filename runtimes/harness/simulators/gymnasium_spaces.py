"""Gymnasium's spaces as the arrays of an interface, for the simulators whose environments have such spaces."""

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from .base import Interface, Space


def space_of(space: Any, name: str) -> Space:
    """Convert a Gymnasium space; Discrete(n) becomes a number from 0 to n - 1, which is rounded."""
    if isinstance(space, spaces.Discrete):
        return Space(dtype="float32", shape=(1,), names=(name,), units=("",), low=(0.0,), high=(float(space.n) - 1,))
    if not isinstance(space, spaces.Box) or not space.shape:
        raise ValueError(f"the {name} space is a {type(space).__name__}; only Box and Discrete are supported")
    count = int(np.prod(space.shape))
    dtype = "float32" if np.issubdtype(space.dtype, np.floating) else str(np.dtype(space.dtype))
    return Space(
        dtype=dtype,
        shape=tuple(int(size) for size in space.shape),
        names=tuple(f"{name}_{index}" for index in range(count)),
        units=("",) * count,
        low=tuple(float(low) for low in space.low.reshape(-1)),
        high=tuple(float(high) for high in space.high.reshape(-1)),
    )


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


class ActionApplier:
    """Turns a model's actions into an environment's: clipped to the space's bounds, and rounded if it is Discrete."""

    def __init__(self, interface: Interface, space: Any) -> None:
        self._interface = interface.action
        self._low = np.array([-np.inf if low is None else low for low in interface.action.low])
        self._high = np.array([np.inf if high is None else high for high in interface.action.high])
        #: The first action, and the bounds, of a Discrete space, whose one number needs no arrays; None for a Box.
        self._discrete: tuple[int, float, float] | None = None
        if isinstance(space, spaces.Discrete):
            self._discrete = (int(space.start), float(self._low[0]), float(self._high[0]))

    def __call__(self, action: NDArray[Any]) -> tuple[Any, NDArray[Any], bool]:
        """Return the environment's action, the action within its bounds as a flat array, and whether it was clipped."""
        flat = action.reshape(-1)
        if self._discrete is not None:
            start, low, high = self._discrete
            value = flat.item(0)
            within = low if value < low else high if value > high else value
            clipped = flat if within == value else np.array([within])
            return start + math.floor(within + 0.5), clipped, within != value
        clipped = np.clip(flat, self._low, self._high)
        applied = clipped.reshape(self._interface.shape).astype(self._interface.dtype)
        return applied, clipped, bool((clipped != flat).any())
