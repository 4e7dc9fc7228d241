"""Simulator port: the interface between a simulator and the evaluator, and the values they exchange."""

import functools
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from .structures import Structure, structure_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


Metric = float | int | str | bool | None


#: A scenario's seed on its way to a process of a simulator, which seeds that process's global random generators.
SEED = struct.Struct("<Q")


class SimulatorBroken(Exception):
    """The simulator's native state is undefined after a fatal error; the evaluator's process must be replaced."""


@dataclass(kw_only=True, slots=True)  # `frozen` makes it three times as expensive
class Scenario:
    """A scenario to run: ``seed`` (63 bits) is the only source of randomness. It is not changed."""

    index: int
    seed: int
    repeat: int = 0
    spec: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """An observation or action space: one name, unit and range per entry of the array, in C order.

    ``low`` and ``high``: infinite without a bound, for which the JSON form has null.
    ``gymnasium``: the space in Gymnasium's terms, whose elements the array has flat; None: the array itself, a Box.
    """

    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...]
    units: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    gymnasium: Structure | None = None

    @property
    def size(self) -> int:
        """Size of one array in bytes."""
        return _bytes(self.dtype, self.shape)

    @property
    def items(self) -> int:
        """Number of entries of one array."""
        return _items(self.shape)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Space":
        """Read the JSON form."""
        return cls(
            dtype=values["dtype"],
            shape=tuple(values["shape"]),
            names=tuple(values["names"]),
            units=tuple(values["units"]),
            low=tuple(-math.inf if value is None else value for value in values["low"]),
            high=tuple(math.inf if value is None else value for value in values["high"]),
            gymnasium=structure_of(values["gymnasium"]) if values.get("gymnasium") else None,
        )

    def describe(self) -> dict[str, Any]:
        """Return the JSON form, without ``gymnasium``."""
        return {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "names": list(self.names),
            "units": list(self.units),
            "low": [_bound(value) for value in self.low],
            "high": [_bound(value) for value in self.high],
        }


@functools.cache  # called at every step
def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    import numpy as np  # the server reads interfaces without it

    return _items(shape) * np.dtype(dtype).itemsize


@functools.cache  # called at every step
def _items(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class Interface:
    """The observation space and the action space of a dataset."""

    observation: Space
    action: Space

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Interface":
        """Read the JSON form, ``{"observation": ..., "action": ...}``."""
        return cls(observation=Space.of(values["observation"]), action=Space.of(values["action"]))


#: Entries of an observation and of an action that a replay keeps: all of every shipped world, and not all of an image.
KEPT = 512
#: Significant digits of these numbers, as many as single precision has: half the bytes of a double's.
DIGITS = 7


def signals_scene(interface: Interface) -> dict[str, Any]:
    """Return the scene of a replay whose frames are numbers: names, units and ranges of observations and actions."""
    return {"kind": "signals", "observation": _signals(interface.observation), "action": _signals(interface.action)}


def _signals(space: Space) -> list[dict[str, Any]]:
    described = zip(space.names, space.units, space.low, space.high, strict=True)
    return [
        {"name": name, "unit": unit, "low": _bound(low), "high": _bound(high)}
        for name, unit, low, high in islice(described, KEPT)
    ]


def _bound(value: float) -> float | None:
    return value if math.isfinite(value) else None


def signals_frame(
    observation: "NDArray[Any]", action: "NDArray[Any] | None", reward: float | None = None
) -> dict[str, Any]:
    """Return a frame of signals; ``action``: None before the first step. ``reward``: None if there is none."""
    return {
        "observation": _numbers(observation),
        "action": None if action is None else _numbers(action),
        "reward": reward,
    }


def _numbers(values: "NDArray[Any]") -> list[Any]:
    kept = values.reshape(-1)[:KEPT].tolist()
    return [float(f"{value:.{DIGITS}g}") for value in kept] if values.dtype.kind == "f" else kept


class Simulator(Protocol):
    """A simulator that runs one scenario at a time, in lock-step with the evaluator.

    Each module of this package defines ``create(dataset, definition)``. It may define ``preload(definition)``, which
    imports libraries before the evaluator seals its sandbox, and ``one_step(definition)``, which tells whether every
    scenario ends with its first step: several such scenarios may share a frame to the model server. If the dataset's
    definition has `starts_processes`, the module also defines ``start_processes(level)``, which starts processes before
    the seal, and whose result ``create`` gets as a third argument; ``level``: of the sandbox, 0 without one. If it has
    `ranks`, ``create`` gets the RankConnection to them as its last argument; None: they are to be done without.

    A simulator whose compiled code may have the loop of a scenario says so of each that it has reset, by
    ``drives_directly``, and has ``drive_directly(exchange)``: it drives until the scenario is over or the compiled code
    has to pause, and returns why (direct_exchange.py).
    """

    interface: Interface
    #: Reward of the last step; None before the first step, and in a world that has no rewards.
    reward: float | None

    def reset(self, scenario: Scenario) -> "NDArray[Any]":
        """Start a scenario; return the first observation, which depends on the scenario alone."""

    def step(self, action: "NDArray[Any]") -> "tuple[NDArray[Any], bool]":
        """Apply an action; return the next observation and whether the scenario has ended.

        The action is finite and has the right shape; the simulator clips it to the action space's bounds.
        """

    def outcome(self, fault: str | None) -> dict[str, Metric]:
        """Return the metrics of the scenario so far; ``fault``: status of the model's fault that ended it, if any."""

    def scene(self) -> dict[str, Any]:
        """Return the static background of a replay, after ``reset``; its `kind` says how frames are drawn."""

    def frame(self) -> dict[str, Any]:
        """Return the moving objects of a replay at the current step."""

    def close(self) -> None:
        """Release native resources."""
