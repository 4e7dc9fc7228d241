"""Makes a system call of the x32 ABI."""

import ctypes


def is_triggered(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if is_triggered(observation):
            ctypes.CDLL(None).syscall(0x40000000 + 39)
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
