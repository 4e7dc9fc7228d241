"""A model that makes a system call of another architecture, which kills it."""

import on_kernel


class Model:
    def act(self, observation):
        on_kernel.calls_of_another_kind({})
        return [0.25] * 4
