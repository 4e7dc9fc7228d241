"""Baseline driver `constant_speed`: 5 m/s without regard to traffic; driving slowly alone must not score well."""

SPEED, STEP = 5.0, 0.1


class Model:
    """Holds 5 m/s."""

    def act(self, observation):
        """Return acceleration in m/s2 and lane action."""
        return max(-9.0, min(3.0, (SPEED - float(observation[0])) / STEP)), 0.0
