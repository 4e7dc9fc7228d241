"""Trusted model: a model in the evaluator's process, asked for actions by a call.

It has what a model server gives it: a new module and instance for each scenario if it would have a process for each,
seeds, random numbers of its own, an empty scratch folder, texts of faults. It lacks the wall between it and the score.
"""

import gc
import importlib
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from ..forking.scratch import Scratch
from ..model_server.deadline_watch import DeadlineWatch
from ..model_server.deadlines import RESET
from ..model_server.fault_texts import calling_fault, loading_fault
from ..model_server.model_faults import Garbage, ModelFault, WrongAnswer
from ..model_server.model_protocol import ErrorReply, FaultKind, Kernel
from ..model_server.model_server_socket import reported
from ..model_server.row_kernels import kernel_of
from ..model_server.row_memory import RowMemory
from ..model_server.row_server import RowServer, row_models
from ..model_server.run_delay import RunDelay
from ..models.base import Assignment, LoadedModel, Misfit, Unloads
from .model_globals import T
from .trusted_loop import TrustedLoop
from .trusted_packages import TrustedPackages

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..models.base import Array


class TrustedModel:
    """Loads and calls a model; has the methods of `ModelServerClient` that scenarios need.

    ``deadline``: seconds of an action. ``renewed``: it is loaded for each scenario. ``most_rows``: how many scenarios
    it may serve at once. ``clearing``: of its scratch folder. Raises ModelFault if the model does not load.
    """

    def __init__(
        self,
        packages: TrustedPackages,
        assignment: Assignment,
        *,
        deadline: float,
        renewed: bool,
        most_rows: int = 0,
        clearing: Scratch | None = None,
    ) -> None:
        if (refusal := packages.refusal()) is not None:
            raise WrongAnswer(f"`trusted`: {refusal}.")
        importlib.invalidate_caches()  # packages that the model has declared may have come since
        self.deadline = deadline
        #: Its exchange for many scenarios at once; None: it serves one.
        self.rows: TrustedRows | None = None
        self._format, self._assignment = packages.format, assignment
        self._renewed, self._most_rows, self._clearing = renewed, most_rows, clearing
        self._globals = packages.globals
        self._folders, self._packages = map(
            _folder_names, ((assignment.files, assignment.scratch), packages.globals.first_path)
        )
        observation, action = assignment.interface.observation, assignment.interface.action
        self._observed = np.zeros((assignment.batch, *observation.shape), observation.dtype)
        self._dtype, self._shape = np.dtype(action.dtype), action.shape
        self._size = assignment.batch * action.size
        self._loop: TrustedLoop | None = None
        self._known: frozenset[str] = frozenset()
        self._forget()  # a model that this process had before
        with suppress(Misfit):  # loading reports it
            # Its packages are on the path already. Those that are not would be tried in a child, and here is none.
            self._globals.run(self._format.prepare, replace(assignment, packages=None))
        self._known = frozenset(sys.modules)
        if renewed:
            gc.freeze()  # what is older than the model need not be examined at each load
        self._model: LoadedModel
        self._act_alone: Callable[[Array], bytes]
        self._load()
        self._delay = RunDelay()

    def begin(self, seed: int) -> None:
        """Do nothing: there is nothing to overlap with the world's reset."""

    def ready(self, seed: int) -> None:
        """Begin a scenario."""
        if self._clearing is not None:
            self._clearing.reset()
        self._delay.take()  # what was before is no excuse for what follows
        began = time.monotonic()
        if self._renewed:
            self._forget()
            self._load()
        self.call_model(began, max(RESET, self.deadline), self._reset, seed)
        self._delay.take()

    def act_alone(self, observation: "Array") -> "tuple[Array, float]":
        """Return the action, in an array of its own, and the latency in seconds. Called at every step."""
        if observation.dtype is not self._observed.dtype or observation.shape != self._observed.shape[1:]:
            observation = observation.astype(self._observed.dtype).reshape(self._observed.shape[1:])
        answer, latency = self._answer(self._act_alone, observation)
        return np.frombuffer(answer, self._dtype).reshape(self._shape), latency

    def act(self, observations: "Array") -> "tuple[Array, float]":
        """Return the actions, in an array of their own, and the latency in seconds."""
        self._observed[...] = observations
        answer, latency = self._answer(self._model.act, self._observed)
        return np.frombuffer(answer, self._dtype).reshape(-1, *self._shape), latency

    def _answer(self, act: Callable[..., bytes], observed: "Array") -> tuple[bytearray, float]:
        """Return the bytes of actions, and the latency in seconds."""
        answer, latency = self.call_model(time.monotonic(), self.deadline, act, observed)
        return bytearray(self._complete(answer)), latency

    def end(self, next_seed: int | None) -> None:
        """Do nothing: the next scenario begins with `ready`."""

    def explain_fault(self, fault: ModelFault) -> ModelFault:
        """Return the fault, whose text is complete."""
        return fault

    def open_rows(self, *, one_step: bool, patience: float) -> Kernel | None:
        """Prepare ``rows``; return how they are computed, None: this model serves one scenario.

        ``one_step``: each scenario ends with its first action. ``patience``: seconds for the comparison of kernels.
        """
        if self._most_rows > 1 and self.rows is None:
            try:
                self.rows = self._globals.run(self._open_rows, one_step, patience)
            except Exception as error:
                raise self._call_fault(error) from None
            self._most_rows = 0 if self.rows is None else self._most_rows
        return None if self.rows is None else self.rows.kernel

    def close(self) -> None:
        """Close what it has open, and give back what is left of the model: another may be loaded in this process."""
        self._delay.close()
        self._forget()

    def call_model(self, began: float, deadline: float, call: Callable[..., T], *arguments: object) -> tuple[T, float]:
        """Return what a call of the model returns, and the seconds since ``began`` (monotonic).

        Raises its fault, or TimedOut if there are more than ``deadline``.
        """
        try:
            answer = self._globals.run(call, *arguments)
        except BaseException as error:
            raise self._call_fault(error) from None
        latency = time.monotonic() - began
        if latency > deadline:
            self._judge(began, deadline, None)
        return answer, latency

    def direct_loop(self, observation: "Array") -> TrustedLoop:
        """Return the loop of a scenario for its simulator's compiled code, which begins with this observation."""
        if self._loop is None:
            self._loop = TrustedLoop(self._assignment.interface, self._act_directly, self._judge)
        self._loop.begin(observation, self.deadline)
        return self._loop

    def _act_directly(self, observation: "Array") -> bytes:
        return self._complete(self._globals.run(self._act_alone, observation))

    def _complete(self, answer: bytes) -> bytes:
        """Return the bytes of actions if they are as many as there have to be."""
        if len(answer) != self._size:
            raise Garbage("the model server sent an invalid reply")
        return answer

    def _judge(self, began: float, deadline: float, error: BaseException | None) -> None:
        """Raise the fault of a call, or TimedOut if it is late and not excused."""
        if error is not None:
            raise error if isinstance(error, ModelFault) else self._call_fault(error)
        DeadlineWatch(deadline, lambda: None, began, self._delay.take).settle()

    def _open_rows(self, one_step: bool, patience: float) -> "TrustedRows | None":
        models = row_models(self._model, self._most_rows, self._reset if one_step else None)
        if not models:
            return None
        interface = self._assignment.interface
        memory, descriptor = RowMemory.make(interface, self._most_rows)
        os.close(descriptor)
        server = RowServer(memory, models, kernel_of(models, interface, patience))
        return TrustedRows(self, memory, server)

    def _load(self) -> None:
        """Load the model as if nothing of it had been there before."""
        self._globals.renew()  # random numbers drawn while a model loads are reproducible, too
        try:
            self._model = model = self._globals.run(self._format.load, self._assignment)
        except BaseException as error:
            raise _fault(*loading_fault(error, self._format, self._assignment)) from None
        self._act_alone = getattr(model, "act_alone", lambda observation: model.act(observation[None]))

    def _forget(self) -> None:
        """Give back what is left of the model: its modules, also those that it has written itself, arrays and files."""
        model = getattr(self, "_model", None)  # it may not have loaded
        if isinstance(model, Unloads):
            model.unload()
        with suppress(AttributeError):
            del model, self._model, self._act_alone  # two of them may be more than there is memory
        own = [name for name in sys.modules.keys() - self._known if name == "model" or self._is_own(sys.modules[name])]
        for name in own:
            del sys.modules[name]
        gc.collect()  # a module is a cycle, and would stay with its arrays and files until Python has many of them

    def _call_fault(self, error: BaseException) -> ModelFault:
        return _fault(*calling_fault(error, self._format, self._assignment))

    def _is_own(self, module: ModuleType) -> bool:
        """Whether a module is from the model's files or its scratch folder; a package without a file may be in both.

        Not if it is from a folder of packages in there: a platform may keep them below /tmp.
        """
        members = getattr(module, "__dict__", {})  # a module's own `__getattr__` may do anything
        file, path = map(members.get, ("__file__", "__path__"))
        places = [file] if file is not None or path is None else getattr(path, "_path", path)
        texts = [place for place in places if isinstance(place, str)]
        return any(_deepest_above(text, self._folders) > _deepest_above(text, self._packages) for text in texts)

    def _reset(self, seed: int) -> None:
        self._globals.seed(seed)
        self._model.reset(seed)


class TrustedRows:
    """Exchange of many scenarios with a trusted model: what `RowExchange` is with a model server."""

    def __init__(self, model: TrustedModel, memory: RowMemory, server: RowServer) -> None:
        self.kernel = server.kernel
        self.kinds, self.seeds, self.observations = memory.kinds, memory.seeds, memory.observations
        self._model, self._memory, self._server = model, memory, server

    def ask(self) -> "tuple[Array, bytes, float]":
        """Return an action for each row, for each 1 if it failed or 0, and the latency in seconds."""
        _, latency = self._model.call_model(time.monotonic(), self._model.deadline, self._server.answer)
        return *self._memory.read(bytearray(self._memory.answers)), latency


def _folder_names(folders: "Iterable[Path | str | None]") -> list[str]:
    return [f"{folder}{os.sep}" for folder in folders if folder]


def _deepest_above(path: str, names: "Iterable[str]") -> int:
    """Return the length of the longest of these folders' names that a path is below; 0 if there is none."""
    return max((len(name) for name in names if path.startswith(name)), default=0)


def _fault(text: str, kind: FaultKind) -> ModelFault:
    return reported(ErrorReply(0, text, kind))
