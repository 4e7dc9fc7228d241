"""Ends its process as soon as it is read."""

import os

os._exit(3)


class Model:
    def act(self, observation):
        return observation
