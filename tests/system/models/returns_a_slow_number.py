"""Returns an object whose conversion to float takes a minute."""

import time


class Slow:
    def __float__(self):
        time.sleep(60.0)
        return 0.0


def is_triggered(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if is_triggered(observation):
            return [Slow()] * (4 if len(observation) == 4 else 2)
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
