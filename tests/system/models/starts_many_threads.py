"""Starts a thousand threads."""

import threading
import time


def is_triggered(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if is_triggered(observation):
            for _ in range(1000):
                threading.Thread(target=time.sleep, args=(60.0,), daemon=True).start()
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
