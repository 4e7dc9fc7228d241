"""Baseline for pettingzoo_simple_spread: moves to the nearest landmark and stays there."""

from typing import Any


class Model:
    """A spring with a damper towards the nearest of three landmarks; positions are relative to the agent."""

    def act(self, observation: Any) -> list[float]:
        velocity_x, velocity_y = (float(value) for value in observation[:2])
        landmarks = [(float(observation[at]), float(observation[at + 1])) for at in (4, 6, 8)]
        x, y = min(landmarks, key=lambda place: place[0] ** 2 + place[1] ** 2)
        right, up = 2.0 * x - 0.5 * velocity_x, 2.0 * y - 0.5 * velocity_y
        return [min(1.0, max(0.0, push)) for push in (0.0, -right, right, -up, up)]
