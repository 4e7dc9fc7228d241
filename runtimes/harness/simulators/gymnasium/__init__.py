"""Gymnasium simulator: runs the environment that a dataset names by id; scenarios are seeds and options.

A scenario's `options` are those of the environment's `reset`; its `kwargs` are added to the dataset's, which are those
with which the environment is made.
"""

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ...dataset_definition import Definition
from ..aggregations import AGGREGATIONS
from ..base import Interface, Metric, Scenario, Simulator, signals_frame, signals_scene
from ..drawings import drawing_of
from ..drawings.shapes import Drawing
from ..gymnasium_spaces import ActionApplier, joined, observed_array, space_of
from . import drawings

#: Packages that register environments. A dataset may name only these: importing a package runs its code.
PACKAGES = frozenset({"highway_env"})
#: Simulators share nothing: many may work side by side in a process.
MANY_WORLDS = True


def preload(definition: Definition) -> None:
    """Import the package that registers the dataset's environment."""
    package = definition.package
    if package is None:
        return
    if package not in PACKAGES:
        raise ValueError(f"a dataset cannot import {package!r}; allowed packages: {', '.join(sorted(PACKAGES))}")
    importlib.import_module(package)


def create(dataset: Path, definition: Definition) -> Simulator:
    """Return a simulator for the dataset."""
    return GymnasiumSimulator(definition)


class GymnasiumSimulator:
    """One Gymnasium environment; the dataset's `outcomes` names the ends "terminated" and "truncated".

    ``drawings``: the package whose modules draw the environment.
    """

    def __init__(self, definition: Definition, drawings: ModuleType = drawings) -> None:
        preload(definition)
        self._drawings = drawings
        name = definition.env or ""
        if ":" in name:
            raise ValueError("an environment's id has no colon: Gymnasium would import the module before it")
        self._name, self._kwargs = name, definition.kwargs
        self._own_kwargs: Mapping[str, Any] = {}  # of the scenario for which the environment was made
        self._environment = self._make(self._own_kwargs)
        actual = Interface(
            observation=space_of(self._environment.observation_space, "observation"),
            action=space_of(self._environment.action_space, "action"),
        )
        declared = Interface.of(definition.interface) if definition.interface else None
        self.interface = joined(declared, actual)
        self._applied = ActionApplier(self.interface, self._environment.action_space)
        self._outcomes: Mapping[str, str] = definition.outcomes
        self._aggregations: Mapping[str, Any] = definition.info
        self._observation = np.zeros(self.interface.observation.shape, self.interface.observation.dtype)
        self._drawing: Drawing | None = None  # of the current scenario's replay
        self._clear()

    def _make(self, own: Mapping[str, Any]) -> Any:
        return gymnasium.make(self._name, disable_env_checker=True, **{**self._kwargs, **own})

    def _clear(self) -> None:
        self._return = 0.0
        self._length = 0
        self._clipped = 0
        self._end = "cut off"
        self._action: NDArray[Any] | None = None
        self.reward: float | None = None
        self._info: dict[str, list[float]] = {name: [] for name in self._aggregations}

    def reset(self, scenario: Scenario) -> NDArray[Any]:
        self._clear()
        own = scenario.spec.get("kwargs", {})
        if own != self._own_kwargs:
            self._environment.close()
            self._environment, self._own_kwargs = self._make(own), own
        observation, _ = self._environment.reset(seed=scenario.seed, options=scenario.spec.get("options"))
        self._observation = self._converted(observation)
        return self._observation

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        applied, self._action, was_clipped = self._applied(action)
        self._clipped += was_clipped
        observation, reward, terminated, truncated, info = self._environment.step(applied)
        self.reward = reward = float(reward)
        self._return += reward
        self._length += 1
        if self._aggregations:
            for name, (key, _) in self._aggregations.items():
                self._info[name].append(float(info[key]))
        self._observation = observation = self._converted(observation)
        if terminated or truncated:
            self._end = "terminated" if terminated else "truncated"
            return observation, True
        return observation, False

    def _converted(self, observation: Any) -> NDArray[Any]:
        return observed_array(observation, self.interface.observation)

    def outcome(self, fault: str | None) -> dict[str, Metric]:
        metrics: dict[str, Metric] = {
            "return": self._return,
            "length": self._length,
            "clipped_actions": self._clipped,
            "outcome": fault or self._outcomes.get(self._end, self._end),
        }
        for name, (_, aggregation) in self._aggregations.items():
            metrics[name] = AGGREGATIONS[aggregation](self._info[name]) if self._info[name] else None
        return metrics

    def scene(self) -> dict[str, Any]:
        signals = signals_scene(self.interface)
        self._drawing = drawing_of(self._drawings, self._environment)
        if self._drawing is None:
            return signals
        return signals | {"kind": "drawing", "drawing": self._drawing.scene()}

    def frame(self) -> dict[str, Any]:
        signals = signals_frame(self._observation, self._action, self.reward)
        return signals if self._drawing is None else signals | {"drawing": self._drawing.frame()}

    def close(self) -> None:
        self._environment.close()
