"""Session process: a simulator in a process and sandbox of its own, and the only access to it."""

import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from local_play.scenario_choice import Chosen
from local_play.served_world import ServedWorld
from runtimes.harness.python_process import ending
from runtimes.harness.runner.framed_socket import Broken, FramedSocket, PeerClosed
from runtimes.harness.runner.process_spec import Installation, ProcessSpec, start_process
from runtimes.harness.sandbox.allowances import MEMORY
from runtimes.harness.session.session_messages import (
    Answer,
    Created,
    Failed,
    Observed,
    Refused,
    ResetOrder,
    StepOrder,
)

#: Seconds for the start of a simulator, whose libraries may still have to be read from disk.
START_SECONDS = 120.0
#: Seconds for a reset or a step: OpenEnv's client waits a minute by default.
ANSWER_SECONDS = 50.0
#: Seconds in which a killed process must have ended.
END_SECONDS = 10.0

Expected = TypeVar("Expected", bound=Answer)
_decoder = msgspec.msgpack.Decoder(Answer)


class SessionEnded(RuntimeError):
    """The process has ended: the scenario is lost, and another process is needed for the next one."""


class ScenarioFailed(RuntimeError):
    """The simulator raised an error, which has ended the scenario; the process can start another one."""


class StepRefused(ValueError):
    """The action was not applied; the scenario goes on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedSteps:
    """Descriptors that a process shares with the trainer that made them (step_memory.py), and the number of worlds.

    ``asked``: the pipe that the process reads; ``answered``: that it writes to. ``spin``: seconds for which it polls
    before it sleeps.
    """

    worlds: int
    spin: float
    memory: int
    asked: int
    answered: int


class SessionProcess:
    """One process; used by one thread at a time. ``answer_seconds``: how long a reset or a step may take.

    ``shared``: by which a trainer orders resets and steps itself; the descriptors stay the caller's. ``worlds``: number
    of the simulators.
    """

    def __init__(
        self, world: ServedWorld, *, answer_seconds: float = ANSWER_SECONDS, shared: SharedSteps | None = None
    ) -> None:
        self._answer_seconds = answer_seconds
        ordered: dict[str, float] = {"worlds": 1}
        descriptors: dict[str, int] = {}
        if shared is not None:
            ordered = {"worlds": shared.worlds, "spin": shared.spin}
            descriptors = {"memory": shared.memory, "asked": shared.asked, "answered": shared.answered}
        local, remote = socket.socketpair()
        spec = ProcessSpec(
            name="session",
            module="session",
            options={
                "dataset": world.folder,
                "setup": {"digest": world.seeds, "total": world.total, "params": dict(world.params)},
                **ordered,
            },
            confined=world.sandbox is not None,
            memory=MEMORY,
            readonly=(world.folder,),
        )
        installation = Installation(python=world.python, harness=world.harness, site=world.site, level=world.sandbox)
        with remote:
            passed = {"socket": remote.fileno(), **descriptors}
            self._process = start_process(spec, installation, passed, sys.stderr.fileno())
        self._channel = FramedSocket(local)
        try:
            self.worlds = self._receive(START_SECONDS, Created).worlds
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Id of the process, or of the one that waits for it outside of its sandbox."""
        return self._process.pid

    def reset(self, chosen: Chosen) -> Observed:
        """Start a scenario; raise SessionEnded or ScenarioFailed."""
        self._send(ResetOrder(chosen.scenario, chosen.repeat, chosen.seed))
        return self._receive(self._answer_seconds, Observed)

    def step(self, values: list[float]) -> Observed:
        """Apply an action; raise StepRefused, SessionEnded or ScenarioFailed."""
        self._send(StepOrder(values))
        return self._receive(self._answer_seconds, Observed)

    def _send(self, order: ResetOrder | StepOrder) -> None:
        try:
            self._channel.send(order)
        except PeerClosed:
            raise self.ended("") from None

    def _receive(self, seconds: float, expected: type[Expected]) -> Expected:
        try:
            answer: Answer = _decoder.decode(self._channel.receive_raw(seconds))
        except TimeoutError:
            raise self.ended(f"it gave no answer within {seconds:g} s, and was killed") from None
        except (PeerClosed, msgspec.MsgspecError):
            raise self.ended("") from None
        if isinstance(answer, Refused):
            raise StepRefused(f"The action was not applied: {answer.reason}. The scenario goes on.")
        if isinstance(answer, Failed):
            raise ScenarioFailed(answer.reason)
        if isinstance(answer, Broken):
            raise self.ended(f"it cannot be created: {answer.reason}")
        if not isinstance(answer, expected):
            raise self.ended("it gave an unexpected answer")
        return answer

    def ended(self, reason: str) -> SessionEnded:
        """End the process; return the error with the reason, or with how it ended by itself."""
        if not reason:
            try:
                reason = ending(self._process.wait(END_SECONDS))
            except subprocess.TimeoutExpired:
                reason = "it closed its connection"
        self.close()
        return SessionEnded(reason)

    def kill(self) -> None:
        """Kill the process, also while another thread waits for its answer."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process, its descendants with it, and wait for its end; may be called twice."""
        self._process.kill()
        self._channel.close()
        self._process.wait(END_SECONDS)
