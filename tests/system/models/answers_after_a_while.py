"""Answers the first observation of each scenario after a while: its simulations last without using a processor."""

import time


class Model:
    def __init__(self):
        self.late = True

    def act(self, observation):
        if self.late:
            self.late = False
            time.sleep(0.15)
        return [1.0 if observation[2] + observation[3] > 0 else 0.0]
