"""Baseline driver `random_driver`: holds a random acceleration and lane action for a random number of steps."""

from random import Random


class Model:
    """Draws all actions from a generator with the seed of `reset`."""

    def __init__(self):
        self.random = Random(0)
        self.steps_left, self.accel, self.lane = 0, 0.0, 0.0

    def reset(self, info):
        """Start a scenario."""
        self.random = Random(info["seed"])
        self.steps_left = 0

    def act(self, observation):
        """Return acceleration in m/s2 and lane action."""
        if self.steps_left == 0:
            self.steps_left = self.random.randint(1, 20)
            wild = self.random.random() < 0.5
            self.accel = self.random.uniform(-9.0, 3.0) if wild else self.random.uniform(-1.0, 2.0)
            self.lane = self.random.choice((-1.0, 0.0, 0.0, 1.0))
        self.steps_left -= 1
        return self.accel, self.lane
