"""Has a class, but not the class `Model`."""


class Driver:
    def act(self, observation):
        return observation
