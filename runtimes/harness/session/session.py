"""Session process: owns a simulator, sandboxed, and steps it as its parent orders, one scenario after another.

Scenarios have the seeds, parameters and metrics of a simulation's tasks: a policy that is trained through a session is
measured by a simulation on equal scenarios.
"""

import json
import os
import socket
import sys
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..evaluator.confined_start import World, start
from ..evaluator.episodes import ActionDelay, not_finite, simulator_error
from ..evaluator.evaluator import BROKEN
from ..evaluator.result_batch import plain
from ..evaluator.tasks import TaskPlan
from ..model_server.model_server_client import finite
from ..runner.framed_socket import Broken, FramedSocket, PeerClosed, Ready
from ..simulators.base import Scenario, SimulatorBroken
from .session_messages import Answer, Failed, Observed, Order, Refused, ResetOrder

_decoder = msgspec.msgpack.Decoder(Order)


class SessionSetup(msgspec.Struct, kw_only=True):
    """What a session must know of the dataset besides its files.

    ``digest``: part of the scenarios' seeds. ``total``: number of scenarios.
    """

    digest: str
    total: int
    params: dict[str, Any]


def main() -> None:
    """Confine this process, create the simulator, and execute the parent's orders to the last."""
    options = json.loads(sys.argv[1])
    world = start({**options, "world": None})
    setup = msgspec.convert(options["setup"], SessionSetup)
    channel = FramedSocket(socket.socket(fileno=options["socket"]))
    try:
        try:
            session = Session(world, setup)
        except SimulatorBroken:
            raise
        except Exception as error:
            channel.send(Broken(simulator_error(error)))
            return
        channel.send(Ready())
        while True:
            channel.send(session.answer(_decoder.decode(channel.receive_raw())))
    except PeerClosed:
        os._exit(0)  # without the simulator's cleanup, which could hang or crash and saves nothing
    except SimulatorBroken as error:
        print(f"session: the simulator failed and its process must be replaced: {error}", file=sys.stderr, flush=True)
        os._exit(BROKEN)


class Session:
    """Runs the scenarios of a dataset, one step for each order."""

    def __init__(self, world: World, setup: SessionSetup) -> None:
        self._simulator = world.create(world.definition)
        self._specs = world.scenarios(world.definition)
        self._setup = setup
        self._score: str | None = score.metric if (score := world.definition.score) is not None else None
        self._seed = 0
        self._scored = 0.0
        self._delay = ActionDelay(0, np.zeros(0))

    def answer(self, order: Order) -> Answer:
        """Execute an order; raise SimulatorBroken if the process must be replaced."""
        try:
            return self._reset(order) if isinstance(order, ResetOrder) else self._step(order.values)
        except SimulatorBroken:
            raise
        except Exception as error:
            return Failed(simulator_error(error))

    def _reset(self, order: ResetOrder) -> Answer:
        setup = self._setup
        plan = TaskPlan({"seed": order.seed, "dataset": setup.digest, "select": {"range": [0, setup.total]}})
        self._seed = plan.seed(order.scenario, order.repeat)
        self._delay = ActionDelay(
            int(setup.params.get("latency_steps", 0)), np.zeros(self._simulator.interface.action.shape)
        )
        scenario = Scenario(
            index=order.scenario,
            repeat=order.repeat,
            seed=self._seed,
            spec=self._specs[order.scenario] if self._specs else {},
            params=setup.params,
        )
        observation = self._simulator.reset(scenario)
        self._scored = self._current_score()
        return self._observed(observation)

    def _step(self, values: list[float]) -> Answer:
        space = self._simulator.interface.action
        with np.errstate(over="ignore"):  # a number beyond the type's range becomes infinite, and is refused
            action = np.array(values, np.float64).astype(space.dtype).reshape(space.shape)
        if not finite(action):
            return Refused(str(not_finite(action)))
        observation, over = self._simulator.step(self._delay(action))
        answer = self._observed(observation)
        answer.reward = self._reward()
        if over:
            metrics = self._simulator.outcome(None)
            answer.metrics = {
                name: plain(value) if isinstance(value, np.generic) else value for name, value in metrics.items()
            }
        return answer

    def _observed(self, observation: NDArray[Any]) -> Observed:
        return Observed(observation.reshape(-1).tolist(), self._seed)

    def _reward(self) -> float | None:
        """Return the reward of the last step: the world's, or the change of the metric that is the dataset's score."""
        if self._simulator.reward is not None or self._score is None:
            return self._simulator.reward
        before, self._scored = self._scored, self._current_score()
        return self._scored - before

    def _current_score(self) -> float:
        if self._score is None:
            return 0.0
        return float(self._simulator.outcome(None)[self._score] or 0.0)
