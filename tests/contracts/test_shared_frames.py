"""Shared frames: tasks of one step that share a frame have the results that each has in a frame of its own."""

import json
from typing import Any

import pytest

from runtimes.harness.evaluator.evaluator import STRIKES
from runtimes.harness.evaluator.frame_sharing import ALONE
from runtimes.harness.model_server.action_exchange import MOST_SHARED
from runtimes.harness.runner import framed_socket
from tests.contracts.harness_processes import evaluator_pair, play_of, worker_spec
from tests.contracts.test_evaluator import FAULTS, RANDOM, ZERO, faulty_model, without_timing

#: Every other answer takes two milliseconds longer: no two frames in a row have the same latency by chance.
UNEVEN = """
import time
import numpy as np
CALLS = 0
class Model:
    def act(self, observation):
        global CALLS
        CALLS += 1
        time.sleep(0.002 * (CALLS % 2))
        return np.zeros(4, np.float32)
"""
#: A task that shares its frame with others, and the tasks of a range.
SHARED, TASKS = ALONE + MOST_SHARED, 100


def frames_of(results: list[dict[str, Any]]) -> list[int]:
    """Return how many tasks shared each frame: they have the same latency."""
    latencies = [result["timing"]["inference"]["p50"] for result in results]
    starts = [at for at in range(len(results)) if at == 0 or latencies[at] != latencies[at - 1]]
    return [end - start for start, end in zip(starts, [*starts[1:], len(results)], strict=True)]


@pytest.fixture(params=["launch", "launch, sandboxed"])
def sandbox(request: pytest.FixtureRequest) -> int | None:
    """The level of the sandbox of both processes."""
    from runtimes.harness.sandbox import level

    return level().number if "sandboxed" in request.param else None


def test_tasks_of_one_step_share_frames_and_have_the_same_results(sandbox: int | None) -> None:
    model = RANDOM.replace("DRAWN += random", "DRAWN = random")
    spec = worker_spec(sandbox=sandbox)
    with evaluator_pair(spec, model, play_of()) as pair:
        shared = pair.run_lines(0, TASKS)
    with evaluator_pair(spec, model, play_of()) as pair:
        alone = pair.run_lines(0, TASKS, careful_until=TASKS)
    assert without_timing(shared) == without_timing(alone)
    assert max(frames_of([json.loads(line) for line in shared.splitlines()])) > 1
    assert len(set(line.partition(b'"metrics"')[2] for line in without_timing(shared))) == TASKS


@pytest.mark.parametrize(
    "fault",
    [
        "raises",
        "exits",
        "kills itself",
        "hangs",
        "answers NaN",
        "answers too little",
        "answers nothing",
        "prints garbage on its socket",
        "closes its socket",
    ],
)
def test_a_fault_in_a_shared_frame_is_the_result_of_its_task_only(fault: str) -> None:
    _, status, text = FAULTS[fault]
    play = play_of(deadline=3.0 if status == "timed_out" else 60.0)
    with evaluator_pair(worker_spec(), faulty_model(fault, play, task=SHARED), play) as pair:
        results = pair.run(0, TASKS)
    assert [result["task"] for result in results if result["status"] != "ok"] == [SHARED]
    assert results[SHARED]["status"] == status and text in results[SHARED]["error"]
    fatal = status in {"crashed", "timed_out"} or "garbage" in fault
    # One of the shared frame, and one of the task by itself: three if it may have been killed from outside.
    alone = STRIKES if fault == "kills itself" else 1
    assert len(pair.needs) in ({alone, alone + 1} if fatal else {0})


def test_a_worlds_exception_is_the_result_of_its_task_only() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of(params={"raise_at": SHARED})) as pair:
        results = pair.run(0, TASKS)
    assert [result["task"] for result in results if result["status"] != "ok"] == [SHARED]
    assert results[SHARED]["error"] == "simulator: RuntimeError: the parameter raise_at names this scenario"
    assert not pair.needs


def test_the_shared_page_has_the_task_whose_world_died() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of(params={"crash_at": SHARED})) as pair:
        with pytest.raises(framed_socket.PeerClosed):
            pair.run(0, TASKS)
        assert pair.evaluator.page.task == SHARED


def test_slow_tasks_do_not_share_frames() -> None:
    with evaluator_pair(worker_spec(), UNEVEN, play_of(params={"sleep_ms": 3})) as pair:
        results = pair.run(0, 2 * ALONE)
    assert set(frames_of(results)) == {1}


def test_tasks_of_several_steps_do_not_share_frames() -> None:
    definition = dict(play_of()["definition"]) | {"steps": 3}
    with evaluator_pair(worker_spec(), ZERO, play_of(definition=definition)) as pair:
        results = pair.run(0, TASKS)
    inferences = [result["timing"]["inference"] for result in results]
    assert any(inference["p50"] != inference["max"] for inference in inferences), "three latencies each"


def test_no_result_is_reported_beyond_a_stop_that_was_lowered() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of(select={"range": [0, 10**6]})) as pair:
        page, channel = pair.evaluator.page, pair.evaluator.channel
        page.stop = 10**6
        channel.send({"type": "play", "start": 0, "stop": 10**6, "flush": 0.05, "careful_until": -1})
        first = channel.receive(30)
        assert isinstance(first, framed_socket.Batch)
        page.stop = 0
        last = first.to
        while not isinstance(message := channel.receive(30), framed_socket.Idle):
            assert isinstance(message, framed_socket.Batch) and message.since == last
            last = message.to
    assert last < 10**6
