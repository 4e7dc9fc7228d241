"""Opens a network connection."""

import socket


def is_triggered(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if is_triggered(observation):
            socket.create_connection(("127.0.0.1", 80), timeout=0.2)
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
