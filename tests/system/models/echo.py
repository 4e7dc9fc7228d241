"""Returns a part of the observation: equal results for equal scenarios."""


class Model:
    def act(self, observation):
        return observation[:4] if len(observation) == 4 else [observation[0] / 50, 0.0]
