"""Plant processes: an FMU's native code in a process per scenario, which knows nothing but that scenario.

The zygote is forked before the evaluator reads its first order, and its memory does not change from then on: what an
FMU leaves in its globals, or reads of memory that it has not written, is the same for every scenario.
"""

import contextlib
import ctypes
import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from ...fmi.instances import LONGEST, Binary, Ended, Port, StepFailed, Wiring, instances
from ...forking import zygote
from ...forking.scenario_sockets import ScenarioSockets
from ...forking.scratch import TMP, Scratch
from ...python_process import ending
from ...sandbox import kernel
from ...visible_text import visible
from ..base import SimulatorBroken

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Message with which a process's socket is passed.
OFFER = b"socket"
#: Message when a process runs: whether the process before ended during its scenario, and its exit code.
ANNOUNCEMENT = struct.Struct("<ii")
#: Before every message between evaluator and plant: its length in bytes.
LENGTH = struct.Struct("<I")
#: The first byte of an answer: values follow, the reason of a failure, or why the plant has ended its simulation.
VALUES, FAILED, ENDED = b"v", b"f", b"e"
#: Seconds within which the zygote forks a process, which it begins as soon as the scenario before has ended.
FORKING = 60.0
#: mallopt: fill allocated blocks with the complement of a byte, and freed ones with the byte.
M_PERTURB = -6
#: The most bytes of a message.
LARGEST = 64 << 20


class PlantFailed(Exception):
    """The plant is to blame for the end of the scenario; the text says how."""


class PlantEnded(Exception):
    """The plant has ended its simulation by itself."""


class Beginning(msgspec.Struct, array_like=True):
    """What a plant's process gets to begin a scenario. ``starts``: values of variables before the initialization."""

    folder: str
    binary: Binary
    wiring: Wiring
    seed: int
    starts: Sequence[tuple[Port, Sequence[float]]]


# -- in the evaluator


class Plants:
    """The evaluator's end: a process for each scenario, over the zygote's socket."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        control.settimeout(FORKING)
        self._sockets = ScenarioSockets(control, OFFER)
        self._plant: socket.socket | None = None
        self._next: socket.socket | None = None

    def begin(self, beginning: Beginning, seconds: float) -> "NDArray[Any]":
        """Begin a scenario in a new process; return the values of the outputs. Raises PlantFailed or PlantEnded."""
        self.end()
        self._plant, self._next = self._next or self._forked()[1], None
        return self._asked(msgspec.msgpack.encode(beginning), seconds, "its initialization")

    def step(self, inputs: "NDArray[Any]", seconds: float) -> "NDArray[Any]":
        """Set the inputs and do a step; return the values of the outputs. Raises PlantFailed or PlantEnded."""
        return self._asked(inputs.tobytes(), seconds, "a step")

    def end(self) -> None:
        """End the scenario: its process is killed if it does not exit by itself."""
        if self._plant is not None:
            self._plant.close()
            self._plant = None
            self._sockets.offer()  # the next process is forked meanwhile

    def _asked(self, request: bytes, seconds: float, what: str) -> "NDArray[Any]":
        import numpy as np  # the server reads formats without it

        if self._plant is None:
            raise PlantFailed("the plant's process has ended")
        self._plant.settimeout(seconds)
        try:
            self._plant.sendall(LENGTH.pack(len(request)) + request)
            answer = received(self._plant)
        except TimeoutError:
            self.end()
            raise PlantFailed(f"the plant has not finished {what} within {seconds:g} s") from None
        except (OSError, EOFError):
            raise PlantFailed(f"the plant's code ended its process during {what}: {self._ending()}") from None
        kind, content = answer[:1], answer[1:]
        if kind == VALUES and len(content) % 8 == 0:
            return np.frombuffer(content, np.float64)
        text = visible(bytes(content[: 4 * LONGEST]).decode(errors="replace"))[:LONGEST]
        if kind == ENDED:
            raise PlantEnded(text)
        raise PlantFailed(text if kind == FAILED else f"the plant's process has answered {what} with something else")

    def _ending(self) -> str:
        """Return how the process of this scenario ended; the answer comes when the next one runs.

        Raises SimulatorBroken if it was killed from outside: the task is run again, as one whose evaluator has died.
        """
        self.end()
        before, self._next = self._forked()
        if before == -signal.SIGKILL:  # which its seal lets it send to nobody
            raise SimulatorBroken("the plant's process was killed from outside")
        return "it closed its connection" if before is None else ending(before)

    def _forked(self) -> tuple[int | None, socket.socket]:
        """Wait for the next process; return the exit code of the one before, if it ended early, and the socket."""
        self._sockets.offer()
        try:
            message = self._control.recv(ANNOUNCEMENT.size)
        except OSError:
            message = b""
        if len(message) < ANNOUNCEMENT.size:
            raise SimulatorBroken("the process that starts plants has ended or does not answer")
        early, code = ANNOUNCEMENT.unpack(message)
        return code if early else None, self._sockets.take()


def received(connected: socket.socket) -> bytearray:
    """Receive a message. Raises EOFError at the end of the stream, and OSError."""
    (length,) = LENGTH.unpack(_exactly(connected, LENGTH.size))
    if length > LARGEST:
        raise EOFError
    return _exactly(connected, length)


def _exactly(connected: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view = memoryview(data)
    while view:
        count = connected.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return data


# -- the zygote, and the plant's processes


def start_processes(level: int) -> Plants:
    """Fork the zygote of this evaluator's plants. Call it before this process is sealed, and has other threads.

    ``level``: of the sandbox that this process is confined in; 0: none.
    """
    import fmpy.fmi2
    import fmpy.fmi3  # noqa: F401  imported once, for all scenarios
    import numpy  # noqa: F401

    own, theirs = socket.socketpair()
    evaluator = os.getpid()
    if os.fork():
        theirs.close()
        return Plants(own)
    try:
        own.detach()
        _run_zygote(theirs.detach(), evaluator, level)
    finally:
        os._exit(1)


def _run_zygote(control: int, evaluator: int, level: int) -> NoReturn:
    """Give up the evaluator's descriptors, seal, and fork a process per scenario until the evaluator ends."""
    sealed = level > 1
    os.dup2(control, 3)
    zygote.closing_from(4)()
    if sealed:
        from ...sandbox import seal

        seal(may_fork=True)
    else:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != evaluator:
        os._exit(0)
    plan = zygote.ScenarioPlan(
        start=_clear_memory,
        serve=_serve,
        announce=lambda code: ANNOUNCEMENT.pack(code is not None, code or 0),
        sealed=sealed,
        scratch=Scratch(TMP) if level == 3 else None,  # at level 2 a confined process writes nowhere
        survives=True,
    )
    zygote.run(socket.socket(fileno=3), plan)


def _clear_memory() -> None:
    """In a plant's process: let malloc return zeros, for plants that read memory which they have not written.

    What is there otherwise depends on addresses, which differ from evaluator to evaluator. A small block that the C
    library has just got back from this process may still have its content.
    """
    if mallopt := getattr(kernel.LIBC, "mallopt", None):  # a C library other than glibc may not have it
        mallopt(M_PERTURB, 0xFF)


def _serve(connected: socket.socket, first: bool) -> None:
    """In a plant's process: load the FMU, make an instance, and do steps until the evaluator closes the socket."""
    import numpy as np

    try:
        beginning = msgspec.msgpack.decode(received(connected), type=Beginning)
    except (EOFError, OSError):
        return
    try:
        (instance,) = instances(beginning.binary, Path(beginning.folder), beginning.wiring, 1)
        instance.reset(beginning.seed, beginning.starts)
        _answer(connected, VALUES, instance.outputs().tobytes())
        while True:
            inputs = np.frombuffer(received(connected), np.float64)
            _answer(connected, VALUES, instance.act(inputs).tobytes())
    except StepFailed as error:
        _answer(connected, ENDED if isinstance(error, Ended) else FAILED, str(error).encode())
    except (EOFError, OSError):
        return
    with contextlib.suppress(EOFError, OSError):
        received(connected)  # the evaluator closes the socket: until then an exit would look like a crash


def _answer(connected: socket.socket, kind: bytes, content: bytes) -> None:
    sys.stderr.flush()
    connected.sendall(LENGTH.pack(1 + len(content)) + kind + content)
