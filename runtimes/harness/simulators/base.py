"""The simulator port: what a world must offer the evaluator, and the values they exchange."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Metric = float | int | str | bool | None


class WorldBroken(Exception):
    """The simulator's native state can no longer be trusted; this process must be replaced."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """One situation to play: ``seed`` (63 bits) is the only source of chance."""

    index: int
    seed: int
    repeat: int = 0
    spec: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """A flat array's meaning: one name, unit and range per entry, in C order."""

    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...]
    units: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def size(self) -> int:
        """Bytes of one array."""
        return _bytes(self.dtype, self.shape)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Space":
        """Read the JSON form."""
        return cls(
            dtype=values["dtype"],
            shape=tuple(values["shape"]),
            names=tuple(values["names"]),
            units=tuple(values["units"]),
            low=tuple(values["low"]),
            high=tuple(values["high"]),
        )


@functools.cache  # asked for at every step
def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize


@dataclass(frozen=True, kw_only=True, slots=True)
class Interface:
    """What a model sees and what it answers."""

    observation: Space
    action: Space

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Interface":
        """Read the JSON form, ``{"observation": ..., "action": ...}``."""
        return cls(observation=Space.of(values["observation"]), action=Space.of(values["action"]))


class World(Protocol):
    """A simulator that plays one scenario at a time, in lock-step with the evaluator."""

    interface: Interface

    def reset(self, scenario: Scenario) -> NDArray[Any]:
        """Begin a scenario; return the first observation. Equal scenarios begin equally, whatever was played before."""

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        """Apply an action (finite, of the right shape; clipping is the world's); say what is seen and if it ended."""

    def outcome(self, fault: str | None) -> dict[str, Metric]:
        """Return the metrics of the scenario so far; ``fault`` names how the model broke it off, if it did."""

    def scene(self) -> dict[str, Any]:
        """Return the static picture of a replay, after ``reset``."""

    def frame(self) -> dict[str, Any]:
        """Return what a replay draws at this instant."""

    def close(self) -> None:
        """Let go of native resources."""
