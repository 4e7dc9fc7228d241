"""Session process: owns simulators, sandboxed, and steps them as a program outside orders, one scenario after another.

A server orders by messages on a socket, for one simulator; a trainer on this machine by memory that it shares with this
process (step_memory.py), for several. Scenarios have the seeds, parameters and metrics of a simulation's tasks: a
policy that is trained through a session is measured by a simulation on equal scenarios.
"""

import json
import os
import socket
import sys
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ..evaluator.confined_start import World, start
from ..evaluator.episodes import not_finite, simulator_error
from ..evaluator.evaluator import BROKEN
from ..model_server.model_server_client import finite
from ..runner.framed_socket import Broken, FramedSocket, PeerClosed
from ..simulators.base import SimulatorBroken
from .played_scenario import PlayedScenario, SessionSetup
from .session_messages import Answer, Created, Failed, Observed, Order, Refused, ResetOrder
from .step_server import StepServer

if TYPE_CHECKING:
    from ..models.base import Array

_decoder = msgspec.msgpack.Decoder(Order)


class SessionOptions(msgspec.Struct, kw_only=True):
    """Options of the process. ``socket``, ``memory``, ``asked`` and ``answered`` are descriptors.

    ``memory``: None if a server orders by messages. ``asked``: the pipe that is read; ``answered``: that is written to.
    ``spin``: seconds for which this process polls before it sleeps.
    """

    setup: SessionSetup
    socket: int
    worlds: int
    memory: int | None = None
    asked: int = -1
    answered: int = -1
    spin: float = 0.0


def main() -> None:
    """Confine this process, create the simulators, and execute the orders to the last."""
    options = json.loads(sys.argv[1])
    world = start(options)
    ordered = msgspec.convert(options, SessionOptions)
    channel = FramedSocket(socket.socket(fileno=ordered.socket))
    try:
        try:
            played = create_all(world, ordered.setup, ordered.worlds)
            server = None
            if ordered.memory is not None:
                descriptors = ordered.memory, ordered.asked, ordered.answered
                server = StepServer(played, ordered.worlds, descriptors, ordered.spin)
        except SimulatorBroken:
            raise
        except Exception as error:
            channel.send(Broken(simulator_error(error)))
            return
        channel.send(Created(len(played)))
        if server is not None:
            server.serve()
            raise PeerClosed
        session = Session(played[0])
        while True:
            channel.send(session.answer(_decoder.decode(channel.receive_raw())))
    except (PeerClosed, BrokenPipeError):
        os._exit(0)  # without the simulator's cleanup, which could hang or crash and saves nothing
    except SimulatorBroken as error:
        print(f"session: the simulator failed and its process must be replaced: {error}", file=sys.stderr, flush=True)
        os._exit(BROKEN)


def create_all(world: World, setup: SessionSetup, worlds: int) -> list[PlayedScenario]:
    """Create so many simulators, or one if several may not work side by side in a process."""
    definition = world.definition
    specs = world.scenarios(definition)
    count = worlds if world.many else 1
    return [PlayedScenario(world.create(definition), definition, specs, setup) for _ in range(count)]


class Session:
    """Runs the scenarios of a dataset, one step for each order."""

    def __init__(self, played: PlayedScenario) -> None:
        self._played = played

    def answer(self, order: Order) -> Answer:
        """Execute an order; raise SimulatorBroken if the process must be replaced."""
        try:
            return self._reset(order) if isinstance(order, ResetOrder) else self._step(order.values)
        except SimulatorBroken:
            raise
        except Exception as error:
            return Failed(simulator_error(error))

    def _reset(self, order: ResetOrder) -> Answer:
        return self._observed(self._played.reset(order.scenario, order.repeat, order.seed))

    def _step(self, values: list[float]) -> Answer:
        space = self._played.interface.action
        with np.errstate(over="ignore"):  # a number beyond the type's range becomes infinite, and is refused
            action = np.array(values, np.float64).astype(space.dtype).reshape(space.shape)
        if not finite(action):
            return Refused(str(not_finite(action)))
        observation, over = self._played.step(action)
        answer = self._observed(observation)
        answer.reward = self._played.reward()
        if over:
            answer.metrics = self._played.metrics()
        return answer

    def _observed(self, observation: "Array") -> Observed:
        return Observed(observation.reshape(-1).tolist(), self._played.seed)
