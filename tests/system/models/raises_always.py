"""Raises an exception in every scenario."""


class Model:
    def act(self, observation):
        raise ValueError("on purpose")
