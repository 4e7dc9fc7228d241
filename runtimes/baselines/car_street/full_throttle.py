"""The yardstick `full_throttle`: as fast as allowed, whatever is ahead."""


class Model:
    """Sees the speed limit and nothing else."""

    def act(self, observation):
        """Return acceleration and lane wish."""
        return (3.0 if observation[0] < observation[2] else 0.0), 0.0
