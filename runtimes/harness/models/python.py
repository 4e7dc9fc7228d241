"""Models in Python: a file, or a zip with ``model.py``, that holds a class ``Model``."""

import importlib.util
import sys
from collections.abc import Mapping
from types import CodeType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import unpacking
from .base import Assignment, Misfit, Model, NoAction, action_bytes

_compiled: dict[bytes, CodeType] = {}


def preload() -> None:
    """Import what most models import, so that a scenario's own process need not."""
    import numpy.linalg
    import numpy.random  # noqa: F401


def prepare(assignment: Assignment) -> None:
    """Compile the source without running it; a child forked later only has to run it."""
    if not unpacking.is_zip(assignment.source):
        _code(assignment.source)


def load(assignment: Assignment) -> Model:
    """Run the model's file and make a ``Model`` of it."""
    module = _from_zip(assignment) if unpacking.is_zip(assignment.source) else _from_file(assignment.source)
    made = getattr(module, "Model", None)
    if made is None:
        names = ", ".join(name for name, value in vars(module).items() if isinstance(value, type)) or "none"
        raise Misfit(f"the file has no class `Model` (its classes: {names})")
    instance = made()
    if not callable(getattr(instance, "act", None)):
        raise Misfit("the class `Model` has no method `act(self, observation)`")
    return PythonModel(instance, assignment)


def _from_file(source: bytes) -> ModuleType:
    module = ModuleType("model")
    sys.modules["model"] = module
    module.__file__ = "model.py"
    exec(_code(source), module.__dict__)
    return module


def _code(source: bytes) -> CodeType:
    if source not in _compiled:
        try:
            _compiled[source] = compile(source, "model.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise Misfit(f"the file is no Python{line}: {reason}") from None
    return _compiled[source]


def _from_zip(assignment: Assignment) -> ModuleType:
    folder = assignment.folder()
    unpacking.unpack(assignment.source, folder)
    if not (folder / "model.py").is_file():
        raise Misfit("the zip has no `model.py` at its top")
    sys.path.insert(0, str(folder))
    found = importlib.util.spec_from_file_location("model", folder / "model.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["model"] = module
    found.loader.exec_module(module)
    return module


class PythonModel:
    """Calls an instance of the user's class; every observation it is given is its own to keep."""

    def __init__(self, instance: Any, assignment: Assignment) -> None:
        self._act = instance.act
        self._act_batch = getattr(instance, "act_batch", None)
        self._reset = getattr(instance, "reset", None)
        self._space = assignment.interface.action
        self._size = self._space.size
        self._dtype = np.dtype(self._space.dtype)
        self._told = {
            "observation": assignment.interface.observation,
            "action": assignment.interface.action,
            "params": dict(assignment.params),
        }
        self.info: Mapping[str, str | int | float | bool | None] = {"class": type(instance).__name__}

    def reset(self, seed: int) -> None:
        if self._reset is not None:
            self._reset({"seed": seed, **self._told})

    def act(self, observations: NDArray[Any]) -> bytes:
        count = len(observations)
        if count == 1:
            answer = self._act(observations[0].copy())
            if type(answer) is np.ndarray and answer.dtype == self._dtype and answer.nbytes == self._size:
                return answer.tobytes()
            return action_bytes(answer, 1, self._space)
        if self._act_batch is not None:
            return action_bytes(self._act_batch(observations.copy()), count, self._space)
        try:
            return b"".join(action_bytes(self._act(one.copy()), 1, self._space) for one in observations)
        except NoAction as error:
            raise NoAction(f"{error}, for one observation of {count}") from None
