"""The yardstick `constant_speed`: 5 m/s with the eyes shut; slow alone must not win."""

SPEED, STEP = 5.0, 0.1


class Model:
    """Holds 5 m/s."""

    def act(self, observation):
        """Return acceleration and lane wish."""
        return max(-9.0, min(3.0, (SPEED - float(observation[0])) / STEP)), 0.0
