"""Has the class `Model`, without the method `act`."""


class Model:
    def drive(self, observation):
        return observation
