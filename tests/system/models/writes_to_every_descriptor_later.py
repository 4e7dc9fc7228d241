"""Writes garbage to every open descriptor from a thread, during a later step."""

import contextlib
import os
import threading
import time


def write_garbage():
    for descriptor in range(3, 256):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\0" * 8)


def is_triggered(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if is_triggered(observation):
            threading.Thread(target=write_garbage, daemon=True).start()
            time.sleep(0.1)
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
