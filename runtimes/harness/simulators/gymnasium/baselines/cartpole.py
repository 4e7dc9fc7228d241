"""Baseline for cartpole: pushes towards the side to which the pole falls, with a correction towards the centre."""

from typing import Any


class Model:
    """A linear controller of the state extrapolated by half a second."""

    def act(self, observation: Any) -> list[float]:
        position, velocity, angle, angular_velocity = (float(value) for value in observation)
        return [1.0 if angle + 0.5 * angular_velocity + 0.02 * position + 0.05 * velocity > 0 else 0.0]
