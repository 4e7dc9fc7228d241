"""Many worlds: scenarios that one model server serves side by side have the results that each has by itself."""

import json
import os
import signal
from typing import Any

import pytest

from runtimes.harness.evaluator.evaluator import STRIKES
from runtimes.harness.evaluator.world_count import USUAL_OF_ONE_STEP
from runtimes.harness.runner import framed_socket
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of, worker_spec
from tests.contracts.test_evaluator import FAULTS, RANDOM, ZERO, faulty_model, without_timing

SLOW = """
import time
import numpy as np
class Model:
    def act(self, observation):
        time.sleep(0.2)
        return np.zeros(4, np.float32)
"""
ONES = ZERO.replace(b"zeros", b"ones")
#: A task whose world works beside others, and the tasks of ranges.
SHARED, TASKS, MANY = 32, 100, 20_000


def most_worlds(results: list[dict[str, Any]]) -> int:
    return max(result["timing"].get("worlds", 1) for result in results)


@pytest.fixture(params=["launch", "launch, sandboxed"])
def sandbox(request: pytest.FixtureRequest) -> int | None:
    """The level of the sandbox of both processes."""
    from runtimes.harness.sandbox import level

    return level().number if "sandboxed" in request.param else None


def test_scenarios_of_one_step_have_the_same_results_in_any_number_of_worlds(sandbox: int | None) -> None:
    model = RANDOM.replace("DRAWN += random", "DRAWN = random")
    results, worlds = [], []
    for asked in (1, 2, 7, 64, 16):
        play = play_of(worlds=asked, select={"range": [0, 2 * TASKS]})
        with evaluator_pair(worker_spec(sandbox=sandbox), model, play) as pair:
            lines = pair.run_lines(0, 2 * TASKS)
        results.append(without_timing(lines))
        worlds.append(most_worlds([json.loads(line) for line in lines.splitlines()]))
    assert results[1:] == results[:1] * 4
    assert worlds == [1, 2, 7, 64, 16]
    assert len(set(line.partition(b'"metrics"')[2] for line in results[0])) == 2 * TASKS


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
def test_a_fault_beside_other_worlds_is_the_result_of_its_task_only(fault: str) -> None:
    _, status, text = FAULTS[fault]
    play = play_of(worlds=16, deadline=3.0 if status == "timed_out" else 60.0)
    with evaluator_pair(worker_spec(), faulty_model(fault, play, task=SHARED), play) as pair:
        results = pair.run(0, TASKS)
    assert [result["task"] for result in results if result["status"] != "ok"] == [SHARED]
    assert results[SHARED]["status"] == status and text in results[SHARED]["error"]
    fatal = status in {"crashed", "timed_out"} or "garbage" in fault
    # One beside others, and one of the task by itself: three if it may have been killed from outside.
    alone = STRIKES if fault == "kills itself" else 1
    assert len(pair.needs) in ({alone, alone + 1} if fatal else {0})


def test_a_worlds_exception_is_the_result_of_its_task_only() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of(worlds=16, params={"raise_at": SHARED})) as pair:
        results = pair.run(0, TASKS)
    assert [result["task"] for result in results if result["status"] != "ok"] == [SHARED]
    assert results[SHARED]["error"] == "simulator: RuntimeError: the parameter raise_at names this scenario"
    assert not pair.needs


def test_the_shared_page_has_the_task_whose_world_died() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of(worlds=16, params={"crash_at": SHARED})) as pair:
        with pytest.raises(framed_socket.PeerClosed):
            pair.run(0, TASKS)
        assert pair.evaluator.page.task == SHARED


def test_auto_has_thirty_two_worlds_of_one_step_once_it_is_worth_the_comparison_of_kernels() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of()) as pair:
        quick = any(most_worlds(pair.run(0, 20)) == 1 for _ in range(60))
    assert quick, "on a machine that stalls, twenty trivial tasks may take long, but not each time"
    with evaluator_pair(worker_spec(), ZERO, play_of(params={"sleep_ms": 2})) as pair:
        assert most_worlds(pair.run(0, TASKS)) == USUAL_OF_ONE_STEP == 32


def test_a_model_of_a_fifth_of_a_second_is_asked_for_one_world_at_a_time() -> None:
    with evaluator_pair(worker_spec(), SLOW, play_of(worlds=64)) as pair:
        results = pair.run(0, 6)
    assert {result["status"] for result in results} == {"ok"} and most_worlds(results) == 1
    assert all(result["timing"]["kernel"] == "one" for result in results)


def test_a_model_with_a_state_of_its_own_is_asked_for_one_world_at_a_time_if_scenarios_have_more_steps() -> None:
    definition = dict(play_of()["definition"]) | {"steps": 3}
    with evaluator_pair(worker_spec(), ZERO, play_of(worlds=16, definition=definition)) as pair:
        results = pair.run(0, TASKS)
    assert most_worlds(results) == 1


def test_the_actions_of_each_world_are_delayed_by_its_own_steps() -> None:
    sweep = {"latency_steps": [0, 1, 2]}
    runs = []
    for worlds in (1, 16):
        play = play_of(sweep=sweep, select={"range": [0, 20]}, worlds=worlds)
        with evaluator_pair(worker_spec(), ONES, play) as pair:
            runs.append(pair.run(0, 60))
    values = [[result["metrics"]["value"] for result in results] for results in runs]
    assert values[0] == values[1] == [4.0] * 20 + [0.0] * 40
    assert most_worlds(runs[1]) == 16


def test_a_dry_run_and_a_batch_have_one_world() -> None:
    for changes in ({"dry_run": True}, {"batch": 4}):
        with evaluator_pair(worker_spec(), ZERO, play_of(worlds=16, **changes)) as pair:
            assert most_worlds(pair.run(0, 20)) == 1


def test_all_worlds_are_played_again_if_the_model_server_is_killed() -> None:
    play = play_of(worlds=16, select={"range": [0, MANY]})
    with evaluator_pair(worker_spec(), ZERO, play) as pair:
        killed = pair.run_lines(0, MANY, flush=0.1, reported=lambda batch: kill_first_model_server(pair))
        assert len(pair.needs) == 1
    with evaluator_pair(worker_spec(), ZERO, play) as pair:
        undisturbed = pair.run_lines(0, MANY)
        assert not pair.needs
    assert without_timing(killed) == without_timing(undisturbed)


def kill_first_model_server(pair: EvaluatorPair) -> None:
    if len(pair.model_servers) == 1:
        os.kill(pair.model_servers[0].process.pid, signal.SIGKILL)


def test_no_result_is_reported_beyond_a_stop_that_was_lowered() -> None:
    with evaluator_pair(worker_spec(), ZERO, play_of(worlds=16, select={"range": [0, 10**6]})) as pair:
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
