"""Instances of FMUs by FMI 2.0 and 3.0 for co-simulation: a new one for a scenario, stepped once per action."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: From this status on a message is the reason of a failure (fmi2Error, fmi3Error).
ERROR = 3
#: The most characters of a message.
LONGEST = 500
#: Messages of a scenario that are in the log.
MESSAGES = 100


#: FMI 2.0: the kind of status that says whether an FMU wants its simulation to end (fmi2Terminated).
TERMINATED = 3


class StepFailed(Exception):
    """A function of the FMU has returned an error."""


class Ended(StepFailed):
    """The FMU has ended its simulation."""


@dataclass(frozen=True, slots=True)
class Port:
    """Variables of a type that are set or got together, and the places of their numbers in a row.

    ``suffix``: ending of the functions that set and get them, such as ``Float64``; ``dtype``: numpy's type.
    """

    suffix: str
    dtype: str
    references: tuple[int, ...]
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wiring:
    """How an instance is used. ``step`` and ``start`` in seconds; ``seed``: the parameter that gets a scenario's.

    ``substeps``: steps of the FMU per action, each of which is ``step`` long.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    step: float
    start: float
    seed: Port | None
    substeps: int = 1


@dataclass(frozen=True, slots=True)
class Binary:
    """What is needed to load an FMU and to make an instance of it, from its description. ``fmi``: "2" or "3"."""

    fmi: str
    guid: str
    identifier: str


class Instance(ABC):
    """An instance of an FMU. ``library``: fmpy's functions of the shared library."""

    def __init__(self, library: Any, wiring: Wiring) -> None:
        self._library, self._wiring = library, wiring
        self._steps, self._messages, self._reason, self._initialized = 0, 0, "", False
        self._outputs = sum(len(port.places) for port in wiring.outputs)
        self._make()

    def reset(self, seed: int, starts: Sequence[tuple[Port, Sequence[float]]] = ()) -> None:
        """Begin a scenario with an instance that has done no step; ``starts``: values set before it is initialized."""
        import numpy as np  # the server reads formats without it

        if self._initialized:
            self._free()
            self._make()
        self._messages = 0
        if (port := self._wiring.seed) is not None:
            self._set(port, [seed & 0x7FFFFFFF])
        for port, values in starts:
            self._set(port, np.array(values).astype(port.dtype).tolist())
        self._call("the initialization", self._initialize)
        self._initialized = True

    def act(self, row: "NDArray[Any]") -> "NDArray[Any]":
        """Set the inputs, do a step, and return the outputs."""
        wiring = self._wiring
        for port in wiring.inputs:
            self._set(port, row[list(port.places)].astype(port.dtype).tolist())
        for _ in range(wiring.substeps):
            self._call("a step", lambda: self._step(wiring.start + self._steps * wiring.step, wiring.step))
            self._steps += 1
        return self.outputs()

    def outputs(self) -> "NDArray[Any]":
        """Return the outputs as they are now."""
        import numpy as np  # the server reads formats without it

        answer = np.empty(self._outputs)
        for port in self._wiring.outputs:
            answer[list(port.places)] = self._call(f"get{port.suffix}", lambda port=port: self._get(port))
        return answer

    def _make(self) -> None:
        self._steps, self._initialized = 0, False
        self._call("the instantiation", self._instantiate)

    def _set(self, port: Port, values: Sequence[float]) -> None:
        function = getattr(self._library, f"set{port.suffix}")
        self._call(f"set{port.suffix}", lambda: function(port.references, values))

    def _call(self, what: str, function: Any) -> Any:
        """Call a function; raise StepFailed with the FMU's own message, if it sent one."""
        self._reason = ""
        try:
            return function()
        except StepFailed:
            raise
        except Exception as error:
            text = f"{' '.join(str(error).split())[:LONGEST]}{f': {self._reason}' if self._reason else ''}"
            raise StepFailed(f"{what} of the FMU failed: {text}") from None

    def log(self, status: int, message: bytes | None) -> None:
        """Take a message of the FMU: it goes to the log, and the last error is the reason of a failure."""
        text = " ".join((message or b"").decode(errors="replace").split())[:LONGEST]
        if status >= ERROR:
            self._reason = text
        self._messages += 1
        if self._messages <= MESSAGES:
            print(text, file=sys.stderr, flush=True)

    @abstractmethod
    def _instantiate(self) -> None: ...

    @abstractmethod
    def _initialize(self) -> None: ...

    @abstractmethod
    def _step(self, time: float, step: float) -> None: ...

    @abstractmethod
    def _get(self, port: Port) -> Sequence[float]: ...

    @abstractmethod
    def _free(self) -> None: ...


class Instance2(Instance):
    """An instance by FMI 2.0."""

    def _instantiate(self) -> None:
        from ctypes import byref

        from fmpy import calloc, fmi2, free
        from fmpy.logging import addLoggerProxy

        callbacks = fmi2.fmi2CallbackFunctions()
        callbacks.logger = fmi2.fmi2CallbackLoggerTYPE(
            lambda component, name, status, category, message: self.log(status, message)
        )
        callbacks.allocateMemory = fmi2.fmi2CallbackAllocateMemoryTYPE(calloc)
        callbacks.freeMemory = fmi2.fmi2CallbackFreeMemoryTYPE(free)
        addLoggerProxy(byref(callbacks))  # formats messages, whose arguments ctypes cannot take
        self._library.instantiate(callbacks=callbacks)

    def _initialize(self) -> None:
        self._library.setupExperiment(startTime=self._wiring.start)
        self._library.enterInitializationMode()
        self._library.exitInitializationMode()

    def _step(self, time: float, step: float) -> None:
        try:
            self._library.doStep(time, step)
        except Exception:
            if self._terminated():
                raise Ended(f"the FMU has ended its simulation at {time + step:g} s") from None
            raise

    def _terminated(self) -> bool:
        """Return whether the FMU says that it has ended the simulation; many do not answer the question."""
        try:
            return bool(self._library.getBooleanStatus(TERMINATED))
        except Exception:
            return False

    def _get(self, port: Port) -> Sequence[float]:
        values: Sequence[float] = getattr(self._library, f"get{port.suffix}")(port.references)
        return values

    def _free(self) -> None:
        self._library.fmi2FreeInstance(self._library.component)  # fmpy's freeInstance unloads the library too


class Instance3(Instance):
    """An instance by FMI 3.0, without event mode."""

    def _instantiate(self) -> None:
        self._library.instantiate(logMessage=lambda environment, status, category, message: self.log(status, message))

    def _initialize(self) -> None:
        self._library.enterInitializationMode(startTime=self._wiring.start)
        self._library.exitInitializationMode()

    def _step(self, time: float, step: float) -> None:
        _, ended, _, _ = self._library.doStep(time, step)
        if ended:
            raise Ended(f"the FMU has ended its simulation at {time + step:g} s")

    def _get(self, port: Port) -> Sequence[float]:
        values: Sequence[float] = getattr(self._library, f"get{port.suffix}")(port.references, len(port.places))
        return values

    def _free(self) -> None:
        self._library.fmi3FreeInstance(self._library.component)


def instances(binary: Binary, folder: Path, wiring: Wiring, count: int) -> list[Instance]:
    """Load the FMU's library and make this number of instances; raise StepFailed with the reason."""
    from fmpy.fmi2 import FMU2Slave
    from fmpy.fmi3 import FMU3Slave

    slave, instance = (FMU2Slave, Instance2) if binary.fmi == "2" else (FMU3Slave, Instance3)
    found: list[Instance] = []
    for index in range(count):
        try:
            library = slave(
                guid=binary.guid,
                unzipDirectory=str(folder),
                modelIdentifier=binary.identifier,
                instanceName=f"model-{index}",
            )
        except Exception as error:
            reason = " ".join(str(error).replace(f"{folder}/", "").split())[:LONGEST]
            raise StepFailed(f"the FMU's library cannot be loaded: {reason}") from None
        found.append(instance(library, wiring))
    return found
