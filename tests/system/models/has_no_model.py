"""Has a class, but not the one that is wanted."""


class Driver:
    def act(self, observation):
        return observation
