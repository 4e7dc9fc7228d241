"""Baseline for pettingzoo_simple_tag: moves to where the prey is going to be."""

from typing import Any


class Model:
    """Full force towards the prey, extrapolated by a few steps; positions are relative to the pursuer."""

    def act(self, observation: Any) -> list[float]:
        x, y, velocity_x, velocity_y = (float(value) for value in observation[12:16])
        right, up = x + 0.3 * velocity_x, y + 0.3 * velocity_y
        largest = max(abs(right), abs(up), 1e-9)
        return [min(1.0, max(0.0, push / largest)) for push in (0.0, -right, right, -up, up)]
