"""Raises in some scenarios, always in the same ones."""


class Model:
    def act(self, observation):
        if len(observation) == 4 and observation[0] > 0.7:
            raise ValueError("this scenario fails")
        return [0.0] * (4 if len(observation) == 4 else 2)
