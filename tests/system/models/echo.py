"""Answers what it sees, as far as it is asked for: the same for the same scenario, whatever happens around it."""


class Model:
    def act(self, observation):
        return observation[:4] if len(observation) == 4 else [observation[0] / 50, 0.0]
