"""Opens a hundred files at once."""


def is_triggered(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if is_triggered(observation):
            files = [open("/dev/null") for _ in range(100)]
            return len(files)
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
