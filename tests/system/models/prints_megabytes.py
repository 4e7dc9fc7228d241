"""Prints eight megabytes per step."""

import sys


def is_triggered(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if is_triggered(observation):
            sys.stdout.write("all work and no play\n" * 400_000)
            sys.stdout.flush()
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
