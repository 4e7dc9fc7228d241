"""Baseline driver `full_throttle`: drives at the speed limit without regard to traffic."""


class Model:
    """Accelerates up to the speed limit."""

    def act(self, observation):
        """Return acceleration in m/s2 and lane action."""
        return (3.0 if observation[0] < observation[2] else 0.0), 0.0
