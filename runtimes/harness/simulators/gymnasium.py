"""Any environment that Gymnasium knows by the id that a dataset names; scenarios are its seeds and reset options."""

import importlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from .base import Interface, Metric, Scenario, Space

#: Packages that register environments. A dataset may name one of these and nothing else: importing is running.
PACKAGES = frozenset({"highway_env"})
#: How the values of one entry of the environment's `info` become a metric.
FOLDS: Mapping[str, Callable[[list[float]], float]] = {
    "last": lambda values: values[-1],
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
}


def preload(definition: Mapping[str, Any]) -> None:
    """Import the package that registers the dataset's environment."""
    package = definition.get("package")
    if package is None:
        return
    if package not in PACKAGES:
        raise ValueError(f"no dataset may import {package!r}; these may be named: {', '.join(sorted(PACKAGES))}")
    importlib.import_module(package)


class World:
    """Plays one environment; terminated and truncated are told apart, and the dataset names them."""

    def __init__(self, dataset: Path, definition: Mapping[str, Any]) -> None:
        preload(definition)
        name = definition["env"]
        if ":" in name:
            raise ValueError("an environment's id has no colon: it would import a module")
        self._environment = gymnasium.make(name, disable_env_checker=True, **definition.get("kwargs", {}))
        seen = Interface(
            observation=_space(self._environment.observation_space, "observation"),
            action=_space(self._environment.action_space, "action"),
        )
        self.interface = Interface.of(definition["interface"]) if definition.get("interface") else seen
        _check(self.interface, seen)
        self._action_space = self._environment.action_space
        self._low = np.array([-np.inf if low is None else low for low in self.interface.action.low])
        self._high = np.array([np.inf if high is None else high for high in self.interface.action.high])
        self._ends: Mapping[str, str] = definition.get("outcomes", {})
        self._folds: Mapping[str, Any] = definition.get("info", {})
        self._begin()

    def _begin(self) -> None:
        self._return = 0.0
        self._length = 0
        self._clipped = 0
        self._end = "cut off"
        self._told: dict[str, list[float]] = {name: [] for name in self._folds}

    def reset(self, scenario: Scenario) -> NDArray[Any]:
        self._begin()
        observation, _ = self._environment.reset(seed=scenario.seed, options=scenario.spec.get("options"))
        return self._seen(observation)

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        flat = action.reshape(-1)
        clipped = np.clip(flat, self._low, self._high)
        self._clipped += int((clipped != flat).any())
        taken: Any
        if isinstance(self._action_space, spaces.Discrete):
            taken = int(self._action_space.start) + math.floor(float(clipped[0]) + 0.5)
        else:
            taken = clipped.reshape(self.interface.action.shape).astype(self.interface.action.dtype)
        observation, reward, terminated, truncated, info = self._environment.step(taken)
        self._return += float(reward)
        self._length += 1
        for name, (key, _) in self._folds.items():
            self._told[name].append(float(info[key]))
        if terminated or truncated:
            self._end = "terminated" if terminated else "truncated"
        return self._seen(observation), bool(terminated or truncated)

    def _seen(self, observation: Any) -> NDArray[Any]:
        space = self.interface.observation
        return np.asarray(observation, space.dtype).reshape(space.shape)

    def outcome(self, fault: str | None) -> dict[str, Metric]:
        metrics: dict[str, Metric] = {
            "return": self._return,
            "length": self._length,
            "clipped_actions": self._clipped,
            "outcome": fault or self._ends.get(self._end, self._end),
        }
        for name, (_, fold) in self._folds.items():
            metrics[name] = FOLDS[fold](self._told[name]) if self._told[name] else None
        return metrics

    def scene(self) -> dict[str, Any]:
        raise ValueError("environments of Gymnasium have no replay that can be drawn")

    def frame(self) -> dict[str, Any]:
        raise ValueError("environments of Gymnasium have no replay that can be drawn")

    def close(self) -> None:
        self._environment.close()


def _space(space: Any, what: str) -> Space:
    """Read a space of Gymnasium's; a choice among n becomes one number from 0 to n - 1, to be rounded."""
    if isinstance(space, spaces.Discrete):
        return Space(dtype="float32", shape=(1,), names=(what,), units=("",), low=(0.0,), high=(float(space.n) - 1,))
    if not isinstance(space, spaces.Box) or not space.shape:
        raise ValueError(f"the {what} is a {type(space).__name__}; only Box and Discrete are played")
    count = int(np.prod(space.shape))
    dtype = "float32" if np.issubdtype(space.dtype, np.floating) else str(np.dtype(space.dtype))
    return Space(
        dtype=dtype,
        shape=tuple(int(size) for size in space.shape),
        names=tuple(f"{what}_{at}" for at in range(count)),
        units=("",) * count,
        low=tuple(float(low) for low in space.low.reshape(-1)),
        high=tuple(float(high) for high in space.high.reshape(-1)),
    )


def _check(told: Interface, seen: Interface) -> None:
    """Compare what the dataset promises with what the environment is."""
    for what in ("observation", "action"):
        promised, found = getattr(told, what), getattr(seen, what)
        if promised.shape != found.shape or promised.dtype != found.dtype:
            raise ValueError(
                f"the dataset promises {what}s {promised.dtype}{list(promised.shape)}, "
                f"the environment has {found.dtype}{list(found.shape)}"
            )
