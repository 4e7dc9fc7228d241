"""A yardstick for cartpole: push to the side to which the pole is falling, and a little towards the middle."""

from typing import Any


class Model:
    """A linear controller that looks half a second ahead."""

    def act(self, observation: Any) -> list[float]:
        position, velocity, angle, turning = (float(value) for value in observation)
        return [1.0 if angle + 0.5 * turning + 0.02 * position + 0.05 * velocity > 0 else 0.0]
