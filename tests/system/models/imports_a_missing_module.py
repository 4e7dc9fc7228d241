"""Imports a module that does not exist."""

import nothing_of_this_name


class Model:
    def act(self, observation):
        return nothing_of_this_name.act(observation)
