"""The yardstick `random_driver`: holds a random acceleration and lane wish for a random while."""

from random import Random


class Model:
    """Draws everything from the seed it is reset with."""

    def __init__(self):
        self.random = Random(0)
        self.left, self.accel, self.lane = 0, 0.0, 0.0

    def reset(self, info):
        """Begin a scenario."""
        self.random = Random(info["seed"])
        self.left = 0

    def act(self, observation):
        """Return acceleration and lane wish."""
        if self.left == 0:
            self.left = self.random.randint(1, 20)
            wild = self.random.random() < 0.5
            self.accel = self.random.uniform(-9.0, 3.0) if wild else self.random.uniform(-1.0, 2.0)
            self.lane = self.random.choice((-1.0, 0.0, 0.0, 1.0))
        self.left -= 1
        return self.accel, self.lane
