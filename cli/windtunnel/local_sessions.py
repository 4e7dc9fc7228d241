"""Local session: scenarios of a dataset step by step, in sandboxed processes on this machine, for one world or many.

A process of the server starts those of the simulators; what is ordered at each step goes directly between them and this
process, by memory (step_exchange.py).
"""

import contextlib
import json
import operator
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from windtunnel.conversations import Conversation, LocalError
from windtunnel.sessions import Observed, Refused, ScenarioLost, Space, World
from windtunnel.step_exchange import ProcessLost, StepExchange
from windtunnel.step_memory import CUT_OFF, FAULT, GOES_ON, IDLE, OVER, RESET, STEP, ArrayType, Document

#: Seconds for which the two processes of an exchange poll before they sleep: as long as waking them, and for each world
#: as long as a step of most takes.
SPIN, SPIN_OF_WORLD = 1e-4, 2e-5
#: The most repetitions, as of a simulation.
REPEATS = 10_000_000
#: The largest seed of a simulation.
LARGEST_SEED = (1 << 63) - 1
#: By outcome, 1 if the scenario goes on.
UNDER_WAY = bytes([1]).ljust(256, b"\0")
#: What is said of a scenario besides its metrics: nothing, in the middle of it.
NOTHING: Mapping[str, object] = {}


class Exchanged(NamedTuple):
    """Results of the orders of an exchange, by worlds.

    ``observations``: as arrays of the space; the last ones of worlds without an order. ``outcomes``: of step_memory.py.
    ``documents``: of the scenarios that have begun or ended.
    """

    observations: NDArray[Any]
    rewards: NDArray[np.float64]
    outcomes: bytes
    documents: Mapping[int, Document]


class DescribedWorld(msgspec.Struct, frozen=True):
    """Message of the server's process: the dataset, and its spaces by their names."""

    dataset: str
    scenarios: int
    interface: dict[Literal["observation", "action"], Space]


class StartedSession(msgspec.Struct, frozen=True):
    """Message of the server's process: its number for one that it has started, its id, and the number of its worlds."""

    process: int
    pid: int
    worlds: int


class SimulatorProcess(NamedTuple):
    """A process of simulators: its number among those of the server, its id, its worlds, and the way to it."""

    number: int
    pid: int
    worlds: range
    exchange: StepExchange


class WorldTask(NamedTuple):
    """Scenario and repetition that a world plays. ``seed``: of the simulation whose task it is."""

    scenario: int
    repeat: int
    seed: int


class LocalSession:
    """Worlds on this machine, in one process if the simulator allows that, otherwise in one for each.

    ``server``: URL of the platform that the dataset is registered on. ``actions``: of the next `step`, by worlds.
    The processes start with the first order, and again after they have ended.
    """

    def __init__(self, dataset: str, params: Mapping[str, object], server: str | None = None, worlds: int = 1) -> None:
        passed, self._passed = socket.socketpair()
        arguments = [dataset, *(f"--param={name}={json.dumps(value)}" for name, value in params.items())]
        arguments += [f"--server={server}"] if server is not None else []
        with passed:
            descriptor = passed.fileno()
            self._conversation = Conversation("session", [*arguments, f"--descriptors={descriptor}"], [descriptor])
        self._processes: list[SimulatorProcess] = []  # by worlds
        self._whole = False  # there is one for each world
        self._each: int | None = None  # worlds of a process, once one has said it
        self._lost = ""
        try:
            self.world = self._receive_world()
        except BaseException:
            self.close()
            raise
        observation, action = self.world.observation, self.world.action
        self._spaces = ArrayType(observation.dtype, observation.shape), ArrayType(action.dtype, action.shape)
        self.worlds = worlds
        self.actions = np.zeros((worlds, *action.shape), action.dtype)
        #: Observations of several processes, of which not all may have an order.
        self._last = np.zeros((worlds, *observation.shape), observation.dtype)
        self._orders = bytearray(worlds)
        self._played: list[WorldTask | None] = [None] * worlds
        self._none = bytes(worlds)
        self._under_way = self._none

    def _receive_world(self) -> World:
        for kind, body in self._conversation.messages():
            if kind == "world":
                described = msgspec.convert(body, DescribedWorld)
                return World(dataset=described.dataset, scenarios=described.scenarios, **described.interface)
        raise AssertionError("messages have no end")

    @property
    def pid(self) -> int:
        """Id of the process that has started those of the simulators."""
        return self._conversation.pid

    @property
    def pids(self) -> list[int]:
        """Ids of the processes of the simulators that have started, or of those that wait for them."""
        return [process.pid for process in self._processes]

    def reset(self, scenario: int, repeat: int, seed: int) -> Observed:
        """Start the scenario that is a task of a simulation with this seed; raise Refused or ScenarioLost."""
        self.order_reset(0, scenario, repeat, seed)
        return self._observation_of(self.exchange())

    def step(self, values: NDArray[np.float64]) -> Observed:
        """Apply an action, flat and finite; raise Refused or ScenarioLost."""
        actions = self.actions
        if values.size != actions.size:
            raise Refused(f"The action has {actions.size} numbers; {values.size} came. The scenario goes on.")
        actions[0] = values.reshape(actions.shape[1:])
        self.order_step(0)
        return self._observation_of(self.exchange())

    def _observation_of(self, exchanged: Exchanged) -> Observed:
        observations, rewards, outcomes, documents = exchanged
        about, metrics = NOTHING, None
        if documents:
            about, metrics = self.about(0, documents[0]), documents[0].metrics
        outcome = outcomes[0]
        return Observed(
            values=observations[0],
            reward=rewards.item(0),
            over=outcome != GOES_ON,
            about=about,
            metrics=metrics,
            truncated=outcome == CUT_OFF,
        )

    def order_reset(self, world: int, scenario: int, repeat: int, seed: int) -> None:
        """Let the next exchange start a scenario in a world.

        Raise Refused, which drops all orders, if there is no such scenario.
        """
        for name, value, end in (
            ("scenario", scenario, self.world.scenarios),
            ("repeat", repeat, REPEATS),
            ("seed", seed, LARGEST_SEED + 1),
        ):
            if not 0 <= value < end:
                self._orders = bytearray(self.worlds)
                named = f" for {self.world.dataset}" if name == "scenario" else ""
                raise Refused(f"`{name}` is a whole number from 0 to {end - 1}{named}, not {value!r:.80}.")
        self._orders[world] = RESET
        self._played[world] = WorldTask(scenario, repeat, seed)

    def order_step(self, world: int) -> None:
        """Let the next exchange apply the world's entry of ``actions``.

        Raise Refused, which drops all orders, if no scenario is under way.
        """
        if not self._under_way[world]:
            self._orders = bytearray(self.worlds)
            raise Refused("No scenario is under way: reset first.")
        self._orders[world] = STEP

    def order_steps(self, ended: Sequence[int]) -> None:
        """Let the next exchange apply ``actions`` in all worlds, as `order_step`, but those that have ``ended``."""
        for world in range(self.worlds) if 0 in self._under_way else ():
            if world not in ended:
                self.order_step(world)
        self._orders = bytearray([STEP]) * self.worlds

    def about(self, world: int, document: Document) -> dict[str, object]:
        """Return what is said of the scenario that a world plays, or has played."""
        played = self._played[world]
        assert played is not None
        return {
            "scenario": played.scenario,
            "repeat": played.repeat,
            "seed": played.seed,
            "name": document.name,
            "scenario_seed": document.seed,
        }

    def exchange(self) -> Exchanged:
        """Execute what is ordered; processes that are needed and do not run are started.

        Raise ScenarioLost if a simulator has failed, or its process has ended: the others have executed their orders.
        """
        orders, self._orders = bytes(self._orders), bytearray(self.worlds)
        before = self._under_way
        # Nothing is, until it is known what has become of it: the wait may be interrupted.
        self._under_way = self._none
        exchanged, lost = self._execute(orders)
        outcomes = exchanged.outcomes
        under_way = outcomes.translate(UNDER_WAY)
        if IDLE in orders:
            outcomes = bytes(map(operator.mul, outcomes, map(bool, orders)))  # GOES_ON is 0
            exchanged = exchanged._replace(outcomes=outcomes)
            under_way = bytes(now if order else old for order, now, old in zip(orders, under_way, before, strict=True))
        self._under_way = under_way
        reasons = [self._end(process, reason) for process, reason in lost]
        if not reasons and FAULT in outcomes:
            document = exchanged.documents.get(outcomes.index(FAULT), Document())
            reasons = [f"The simulator has failed, which ends the scenario: {document.reason}. Reset goes on."]
        if reasons:
            raise ScenarioLost(reasons[0])
        return exchanged

    def _execute(self, orders: bytes) -> tuple[Exchanged, list[tuple[SimulatorProcess, str]]]:
        """Return what has become of the orders, and the processes that are lost, with the reason."""
        lost: list[tuple[SimulatorProcess, str]] = []
        processes = self._all_processes()
        parts: list[tuple[range, Exchanged]] = []
        rung = []
        for process in processes:
            if any(orders[process.worlds.start : process.worlds.stop]):
                try:
                    self._ring(process, orders)
                    rung.append(process)
                except ProcessLost as error:
                    lost.append((process, str(error)))
        for process in rung:
            try:
                answered = _collect(process)
            except ProcessLost as error:
                lost.append((process, str(error)))
                continue
            if len(processes) == 1:
                return answered, lost
            parts.append((process.worlds, answered))
        return self._join(parts), lost

    def _ring(self, process: SimulatorProcess, orders: bytes) -> None:
        worlds, exchange = process.worlds, process.exchange
        exchange.settle()
        memory, count, ordered = exchange.memory, len(worlds), orders[worlds.start : worlds.stop]
        memory.orders[:count] = ordered
        memory.actions[:count] = self.actions[worlds.start : worlds.stop]
        if RESET in ordered:
            for place, world in enumerate(worlds):
                if (played := self._played[world]) is not None and orders[world] == RESET:
                    memory.scenarios[place], memory.repeats[place], memory.seeds[place] = played
        exchange.ring()

    def _join(self, parts: Sequence[tuple[range, Exchanged]]) -> Exchanged:
        """Return what has become of the orders to several processes; the worlds of those that are lost are over."""
        observations = self._last
        rewards, outcomes = np.zeros(self.worlds), bytearray([OVER]) * self.worlds
        documents: dict[int, Document] = {}
        for worlds, part in parts:
            observations[worlds.start : worlds.stop] = part.observations
            rewards[worlds.start : worlds.stop] = part.rewards
            outcomes[worlds.start : worlds.stop] = part.outcomes
            documents |= {worlds[place]: document for place, document in part.documents.items()}
        return Exchanged(observations.copy(), rewards, bytes(outcomes), documents)

    def _all_processes(self) -> list[SimulatorProcess]:
        """Return the processes of all worlds, by worlds; start those that do not run."""
        if not self._whole:
            first = 0
            while first < self.worlds:
                process = next((process for process in self._processes if first in process.worlds), None)
                if process is None:
                    process = self._start(first)
                    self._processes.append(process)
                first = process.worlds.stop
            self._processes.sort(key=lambda process: process.worlds.start)
            self._whole = True
        return self._processes

    def _start(self, first: int) -> SimulatorProcess:
        """Start a process for a world and those that follow it, as many as it takes; raise ScenarioLost."""
        worlds = self.worlds - first if self._each is None else self._each
        processes = 1 if self._each is None else self.worlds // self._each
        spin = SPIN + worlds * SPIN_OF_WORLD if len(os.sched_getaffinity(0)) > processes else 0.0
        exchange = StepExchange(*self._spaces, worlds, spin)
        try:
            with contextlib.suppress(OSError):  # it has ended, which the conversation says
                socket.send_fds(self._passed, [b"\0"], exchange.descriptors)
            exchange.close_passed()
            kind, body = self._ask({"start": {"worlds": worlds, "spin": spin}})
            if kind != "started":
                raise ScenarioLost(str(body))
        except BaseException:
            exchange.close()
            raise
        started = msgspec.convert(body, StartedSession)
        self._each = started.worlds
        return SimulatorProcess(started.process, started.pid, range(first, first + started.worlds), exchange)

    def _end(self, process: SimulatorProcess, reason: str) -> str:
        """End a process, and return how it has ended."""
        self._processes.remove(process)
        self._whole = False
        process.exchange.close()
        _, body = self._ask({"end": {"process": process.number, "reason": reason}})
        return str(body)

    def _ask(self, order: Mapping[str, object]) -> tuple[str, Any]:
        """Return the answer of the server's process; raise ScenarioLost if it has ended."""
        try:
            if not self._lost:
                self._conversation.send(order)
                return self._conversation.receive()
        except LocalError as error:
            self._lost = f"{error}. Make the environment again."
        raise ScenarioLost(self._lost)

    def close(self) -> None:
        """End the processes; may be called twice."""
        self._conversation.close()
        self._passed.close()
        self._whole = False
        while self._processes:
            self._processes.pop().exchange.close()


def _collect(process: SimulatorProcess) -> Exchanged:
    """Wait for what has become of a process's orders; raise ProcessLost without an answer."""
    exchange, count = process.exchange, len(process.worlds)
    lengths, outcomes, rewards, observations = exchange.answers(count)
    documents: dict[int, Document] = {}
    for place, length in enumerate(lengths[:count]) if any(lengths) else ():
        if length:
            documents[place] = exchange.document(place, length)
    if count < len(outcomes):
        return Exchanged(observations[:count], rewards[:count], outcomes[:count], documents)
    return Exchanged(observations, rewards, outcomes, documents)
