"""Makes a system call by the number of another kind of machine, which ends it."""

import on_kernel


class Model:
    def act(self, observation):
        on_kernel.calls_of_another_kind({})
        return [0.25] * 4
