"""A candidate: a controller of cartpole that pushes towards the side to which the pole falls."""


class Model:
    """Balance the pole by its angle and its angular velocity."""

    def act(self, observation):
        """Return the push: 1 to the right, 0 to the left."""
        _, _, angle, turning = observation
        return [1.0 if angle + 0.5 * turning > 0 else 0.0]
