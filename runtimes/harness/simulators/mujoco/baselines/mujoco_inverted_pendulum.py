"""Baseline for mujoco_inverted_pendulum: pushes the cart under the pole, with a correction towards the centre."""

from typing import Any


class Model:
    """A linear controller of position, angle and their velocities."""

    def act(self, observation: Any) -> list[float]:
        position, angle, velocity, angular_velocity = (float(value) for value in observation)
        return [position + 10.0 * angle + velocity + 2.0 * angular_velocity]
