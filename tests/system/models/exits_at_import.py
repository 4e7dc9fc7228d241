"""Exits its process during the import."""

import os

os._exit(3)


class Model:
    def act(self, observation):
        return observation
