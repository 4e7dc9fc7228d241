"""Prints eight megabytes a step."""

import sys


def provoked(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if provoked(observation):
            sys.stdout.write("all work and no play\n" * 400_000)
            sys.stdout.flush()
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
