"""Imports a module that does not exist, when it is called."""


def is_triggered(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if is_triggered(observation):
            import nothing_of_this_name

            return nothing_of_this_name.act(observation)
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
