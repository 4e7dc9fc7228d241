"""Baseline for mujoco_swimmer: a wave that runs from the first joint to the second."""

from math import sin
from typing import Any

#: Angle of the wave per step in radians, 3 rad/s, and how far the second joint is behind the first.
STEP, LAG = 0.12, 1.5


class Model:
    """Does not look at the observation: the phase of the wave follows from the number of the step."""

    def reset(self, info: dict[str, Any]) -> None:
        self._step = 0

    def act(self, observation: Any) -> list[float]:
        phase = STEP * self._step
        self._step += 1
        return [sin(phase), sin(phase - LAG)]
