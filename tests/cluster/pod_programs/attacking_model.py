"""A model that waits for the victim process and runs every attack while it is loaded; then it only answers."""

import os
import time

import attack_runner
from attack_stage import STAGE


class Model:
    """Runs the attacks once."""

    def __init__(self):
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            try:
                os.stat(STAGE["ready"])  # at level 2 only the existence of a file can be seen
                break
            except FileNotFoundError:
                time.sleep(0.05)
        attack_runner.run_all(STAGE)

    def act(self, observation):
        return [0.25] * 4
