"""Copies a shared library to the temporary folder and loads it."""

import ctypes
import shutil
import sys


def is_triggered(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if is_triggered(observation):
            path = sys.modules["_ctypes"].__file__
            shutil.copyfile(path, "/tmp/library.so")
            ctypes.CDLL("/tmp/library.so")
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
