"""A model that waits for its victim and plays every attack, while it is loaded; then it answers as others do."""

import os
import time

import playing
from told import STAGE


class Model:
    """Plays once."""

    def __init__(self):
        ends = time.monotonic() + 100
        while time.monotonic() < ends:
            try:
                os.stat(STAGE["ready"])  # what exists can be seen at level 2, and nothing else of it
                break
            except FileNotFoundError:
                time.sleep(0.05)
        playing.play(STAGE)

    def act(self, observation):
        return [0.25] * 4
