"""Worlds: each task has its own result, whatever begins, ends or fails beside it; a real exchange with a row server."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from datasets.catalogue import datasets
from runtimes.harness.evaluator.planned_tasks import PlannedTask, PlannedTasks
from runtimes.harness.evaluator.result_batch import Played
from runtimes.harness.evaluator.runner_connection import EvaluationSetup
from runtimes.harness.evaluator.world_count import WorldCount
from runtimes.harness.evaluator.worlds import Worlds
from runtimes.harness.model_server.model_server_socket import ModelServerSocket
from runtimes.harness.model_server.row_exchange import RowExchange
from runtimes.harness.model_server.row_memory import RowMemory
from runtimes.harness.model_server.row_server import RowServer
from runtimes.harness.models.base import KeepsNothing
from runtimes.harness.simulators.base import Interface, Scenario, Simulator
from runtimes.harness.simulators.noop import NoopSimulator
from runtimes.harness.task_page import SIZE
from tests.contracts.harness_processes import play_of

SETUP = msgspec.convert(play_of(), EvaluationSetup)
INTERFACE = Interface.of(datasets()["noop"].definition["interface"])
ROWS, TASKS = 7, 30


class Echo(KeepsNothing):
    """Answers with the observation."""

    def act(self, observations: NDArray[Any]) -> bytes:
        return observations.astype(np.float32).tobytes()


class Walk(NoopSimulator):
    """A world of as many steps as ``lengths`` has for its scenario, whose value is the sum of all its actions."""

    lengths: tuple[int, ...] = ()

    def reset(self, scenario: Scenario) -> NDArray[Any]:
        self._sum, self._left = 0.0, self.lengths[scenario.index]
        return super().reset(scenario)

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], bool]:
        observation, _ = super().step(action)
        self._sum, self._left = self._sum + self._value, self._left - 1
        return observation * np.float32(0.5), self._left <= 0

    def outcome(self, fault: str | None) -> dict[str, Any]:
        return {"sum": self._sum, "fault": fault}


def walk(lengths: tuple[int, ...]) -> Callable[[], Simulator]:
    def create() -> Simulator:
        simulator = Walk(SETUP.definition)
        simulator.lengths = lengths
        return simulator

    return create


@contextmanager
def exchange() -> Iterator[RowExchange]:
    """Yield an exchange of ROWS rows with a row server in a thread."""
    local, remote = socket.socketpair()
    connection = ModelServerSocket(local, 64, 60.0, lambda: None)
    rows = RowExchange(connection, INTERFACE, ROWS)
    memory, asked, answered = map(os.dup, rows.descriptors)
    rows.close_passed()
    server = RowServer(RowMemory.map_descriptor(INTERFACE, ROWS, memory), [Echo()] * ROWS, "rows")
    thread = threading.Thread(target=server.serve, args=(remote, asked, answered))
    thread.start()
    try:
        yield rows
    finally:
        local.close()
        thread.join()
        rows.close()
        for descriptor in (asked, answered):
            os.close(descriptor)
        remote.close()


def play(
    rows: RowExchange,
    create: Callable[[], Simulator],
    worlds: int,
    stop: Callable[[], int] = lambda: TASKS,
    ended: Callable[[int], object] = lambda task: None,
) -> dict[int, Played | None]:
    """Play the tasks with so many worlds; ``ended`` is called with each task that has a result."""
    count = WorldCount(max(2, worlds), 60.0)
    count.record_alone()
    tasks, upcoming, results = PlannedTasks(SETUP, []), iter(range(TASKS)), {}
    page = memoryview(bytearray(SIZE)).cast("q")

    def next_tasks(working: int) -> Iterator[tuple[PlannedTask, int]]:
        if None not in results.values():
            for number in islice(upcoming, worlds - working):
                yield tasks.task(number), 7

    for finished in Worlds(create, count, page, keep_actions=True).play(rows, "rows", next_tasks, stop):
        for task, played in finished:
            assert task.number not in results
            results[task.number] = played
            ended(task.number)
    return results


lengths = st.lists(st.integers(1, 9), min_size=TASKS, max_size=TASKS).map(tuple)


@given(lengths, st.integers(1, ROWS))
def test_a_tasks_result_does_not_depend_on_the_worlds_beside_it(lengths: tuple[int, ...], worlds: int) -> None:
    with exchange() as rows:
        alone, beside = play(rows, walk(lengths), 1), play(rows, walk(lengths), worlds)
    assert sorted(beside) == list(range(TASKS))
    for number, result in beside.items():
        one = alone[number]
        assert result is not None and one is not None and len(result.latencies) == lengths[number]
        assert (result.status, result.metrics, result.actions) == (one.status, one.metrics, one.actions)
        assert 1 <= result.worlds <= worlds and result.kernel == "rows"


@given(lengths, st.integers(1, ROWS), st.integers(0, TASKS), st.integers(0, TASKS))
def test_tasks_that_have_begun_are_dropped_if_another_worker_has_taken_them(
    lengths: tuple[int, ...], worlds: int, after: int, end: int
) -> None:
    ended: list[int] = []

    def stop() -> int:
        return end if len(ended) > after else TASKS

    with exchange() as rows:
        results = play(rows, walk(lengths), worlds, stop, ended.append)
    assert set(results) >= set(range(min(end, TASKS)))
    assert all(number < TASKS for number in results)


def test_a_task_without_a_simulator_is_sent_back_and_the_others_end() -> None:
    made: list[Simulator] = []

    def create() -> Simulator:
        if len(made) == 3:
            raise MemoryError
        made.append(walk((5,) * TASKS)())
        return made[-1]

    with exchange() as rows:
        results = play(rows, create, ROWS)
    assert {number: result and result.status for number, result in results.items()} == {
        0: "ok",
        1: "ok",
        2: "ok",
        3: None,
    }


def test_an_exception_of_a_world_is_the_result_of_its_task() -> None:
    class Failing(Walk):
        def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], bool]:
            if self._scenario.index == 4 and self._left == 2:
                raise RuntimeError("a step failed")
            return super().step(action)

    def create() -> Simulator:
        simulator = Failing(SETUP.definition)
        simulator.lengths = (5,) * TASKS
        return simulator

    with exchange() as rows:
        results = play(rows, create, ROWS)
    failed = {number: result.error for number, result in results.items() if result is not None and result.error}
    assert failed == {4: "simulator: RuntimeError: a step failed"}


@pytest.mark.parametrize("written", [b"", b"xx"])
def test_a_server_that_rings_more_than_once_or_is_gone_is_a_fault_of_all(written: bytes) -> None:
    from runtimes.harness.model_server.model_faults import Crashed, Garbage

    local, remote = socket.socketpair()
    rows = RowExchange(ModelServerSocket(local, 64, 60.0, lambda: None), INTERFACE, ROWS)
    answer = os.dup(rows.descriptors[2])
    asked = os.dup(rows.descriptors[1])
    rows.close_passed()
    if written:
        os.write(answer, written)
    else:
        remote.close()
    with pytest.raises(Garbage if written else Crashed):
        rows.ask()
    for closed in (rows, local, remote):
        closed.close()
    for descriptor in (asked, answer):
        os.close(descriptor)
