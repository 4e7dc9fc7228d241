"""Baseline for mujoco_reacher: pulls the fingertip towards the target, as a spring with a damper would."""

from math import atan2, cos, sin
from typing import Any

#: Lengths of the links in metres, the second one up to the fingertip.
FIRST, SECOND = 0.10, 0.11
SPRING, DAMPER = 4.0, 0.02


class Model:
    """Torques that a force from fingertip to target causes at the joints (the transposed Jacobian)."""

    def act(self, observation: Any) -> list[float]:
        cos_1, cos_2, sin_1, sin_2, _, _, rate_1, rate_2, from_target_x, from_target_y = map(float, observation)
        angle = atan2(sin_1, cos_1)
        total = angle + atan2(sin_2, cos_2)
        second = (-SECOND * sin(total), SECOND * cos(total))
        first = (second[0] - FIRST * sin(angle), second[1] + FIRST * cos(angle))
        return [
            -SPRING * (x * from_target_x + y * from_target_y) - DAMPER * rate
            for (x, y), rate in ((first, rate_1), (second, rate_2))
        ]
