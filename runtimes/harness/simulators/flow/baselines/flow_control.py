"""Baseline for flow_control: turns the cylinder's surface against the lift and its change, within limits."""

from typing import Any

#: Metres per second of the surface for a lift coefficient of 1, and for its change by 1 in a step.
PROPORTIONAL, DIFFERENTIAL = -0.1, -0.5


class Model:
    """A proportional and differential controller of the lift."""

    def __init__(self) -> None:
        self._last: float | None = None

    def reset(self, seed: int) -> None:
        """Forget the scenario before."""
        self._last = None

    def act(self, observation: Any) -> list[float]:
        lift = float(observation[1])
        change = 0.0 if self._last is None else lift - self._last
        self._last = lift
        return [PROPORTIONAL * lift + DIFFERENTIAL * change]
