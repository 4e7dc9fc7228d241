"""No-op simulator: scenarios of one trivial step, to measure the platform alone and to test how it handles faults.

A definition with `steps` has scenarios of so many steps, which measure the cost of a step alone.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...dataset_definition import Definition
from ..base import Interface, Metric, Scenario, Simulator, signals_frame, signals_scene

#: Simulators share nothing: many may work side by side in a process.
MANY_WORLDS = True
_SCALE = np.float32(1 / 65536)


def create(dataset: Path, definition: Definition) -> Simulator:
    """Return a simulator for the dataset."""
    return NoopSimulator(definition)


def one_step(definition: Definition) -> bool:
    """Whether every scenario ends with its first step."""
    return definition.steps == 1


class NoopSimulator:
    """Observations are four numbers derived from the seed; the metric `value` is the sum of the action."""

    reward: float | None = None

    def __init__(self, definition: Definition) -> None:
        self.interface = Interface.of(definition.interface or {})
        self._steps = self._steps_left = definition.steps
        self._scenario = Scenario(index=0, seed=0)
        self._observation: NDArray[Any] = np.zeros(4, np.float32)
        self._action: NDArray[Any] | None = None
        self._value = 0.0
        self._echo = 0.0

    def reset(self, scenario: Scenario) -> NDArray[Any]:
        self._scenario = scenario
        words = np.frombuffer(scenario.seed.to_bytes(8, "little"), "<u2")
        self._observation = words * _SCALE
        self._echo = sum(words.tolist()) / 65536
        self._value = 0.0
        self._action = None
        self._steps_left = self._steps
        return self._observation

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        params = self._scenario.params
        if params:
            self._inject_faults(params, self._scenario.index)
        self._value = sum(action.tolist())
        self._action = action
        self._steps_left -= 1
        return self._observation, self._steps_left <= 0

    @staticmethod
    def _inject_faults(params: Mapping[str, Any], index: int) -> None:
        if work := params.get("work_us"):
            until = time.perf_counter() + work / 1e6
            while time.perf_counter() < until:
                pass
        if wait := params.get("sleep_ms"):
            time.sleep(wait / 1e3)
        if params.get("raise_at") == index:
            raise RuntimeError("the parameter raise_at names this scenario")
        if params.get("crash_at") == index:
            os._exit(1)
        if params.get("hang_at") == index:
            time.sleep(1e6)

    def outcome(self, fault: str | None) -> dict[str, Metric]:
        return {"value": self._value, "echo": self._echo}

    def scene(self) -> dict[str, Any]:
        return signals_scene(self.interface)

    def frame(self) -> dict[str, Any]:
        return signals_frame(self._observation, self._action)

    def close(self) -> None:
        """Do nothing: there are no native resources."""
