"""Model globals: what a process has once, and a model in the evaluator's process has for itself while it runs.

These are the random numbers of `random` and `numpy.random`, the search path of modules, and context variables, in which
numpy has its treatment of floating-point errors and decimal its precision. A process makes them once: modules of
packages, which stay, keep those that they have been imported with.
"""

import contextvars
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class ModelGlobals:
    """The globals of a model; the world's are in place but within `run`. ``path``: its search path, to begin with.

    Modules are exchanged rather than the states of generators, which are larger than a step of many worlds is long, and
    of which numpy's has a normal number in hand besides.
    """

    def __init__(self, path: Sequence[str]) -> None:
        self.path = list(path)
        #: The search path of a model that has not added to it.
        self.first_path = tuple(path)
        self._folder, self._variables = os.getcwd(), dict(os.environ)
        self._world_path = sys.path
        self._random = _random_of_its_own()
        self._state = np.random.RandomState(0)
        self._own = {"random": self._random, **_numpy_random_with(self._state)}
        self._world = {name: sys.modules[name] for name in self._own}
        self._numpy_random = self._own["numpy.random"], self._world["numpy.random"]
        self._run = contextvars.Context().run

    def run(self, call: Callable[..., T], *arguments: object) -> T:
        """Return what a call of the model's returns, with the model's in place. Called at every step."""
        modules, (own, world) = sys.modules, self._numpy_random
        modules.update(self._own)
        np.random, sys.path = own, self.path
        try:
            return self._run(call, *arguments)
        finally:
            np.random, sys.path = world, self._world_path
            modules.update(self._world)

    def renew(self) -> None:
        """Let the next call have them as a new process has them, and the working folder and environment variables."""
        self.path[:] = self.first_path
        os.chdir(self._folder)
        if os.environ != self._variables:
            os.environ.clear()
            os.environ.update(self._variables)
        self._run = contextvars.Context().run
        if not isinstance(self._state._bit_generator, np.random.MT19937):  # the only kind that can be seeded
            self._state.__init__(0)  # type: ignore[misc]
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Seed the model's generators, as a model server does."""
        self._random.seed(seed)
        self._state.seed(seed & 0xFFFFFFFF)


def _random_of_its_own() -> ModuleType:
    spec = importlib.util.find_spec("random")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _numpy_random_with(state: np.random.RandomState) -> dict[str, ModuleType]:
    """Return `numpy.random` and its `mtrand` with the functions of this state in place of those of the global one."""
    names = ("numpy.random.mtrand", "numpy.random")
    copies = {name: ModuleType(name) for name in names}
    shared = sys.modules["numpy.random.mtrand"]._rand
    for name, module in copies.items():
        for member, value in vars(sys.modules[name]).items():
            of_state = getattr(value, "__self__", None) is shared
            setattr(module, member, getattr(state, value.__name__) if of_state else value)
        module.__dict__.update(
            seed=state.seed,
            ranf=state.random_sample,
            sample=state.random_sample,
            get_bit_generator=lambda: state._bit_generator,
            set_bit_generator=state.__init__,  # type: ignore[misc]
        )
    copies["numpy.random.mtrand"]._rand = state  # type: ignore[attr-defined]
    copies["numpy.random"].mtrand = copies["numpy.random.mtrand"]  # type: ignore[attr-defined]
    return copies
