"""Prints escape sequences that a terminal would interpret."""


class Model:
    def act(self, observation):
        print("hello from a model \x1b[31m in red \u202e backwards")
        return [0.0] * (4 if len(observation) == 4 else 2)
