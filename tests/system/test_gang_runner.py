"""The runner of a gang's pods against the real runner API: every task has one result, whichever process ends."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.domain.scheduling.launches import Gang
from tests.archives import zipped
from tests.gang_pods import TIMEOUT, GangPods, pods
from tests.system.runner_api import RunnerApi
from tests.waiting import until

#: The program of every replica.
PROGRAM = """
import json, os, pathlib, sys, time
scenario = json.load(open(os.environ["WINDTUNNEL_SCENARIO"]))
rank = int(os.environ["WINDTUNNEL_RANK"])
import settings
if scenario["index"] == 3 and rank == 1:
    sys.exit(9)
if scenario["index"] == 4:
    sys.exit(0)
if scenario["index"] == 5:
    pathlib.Path(os.environ["WINDTUNNEL_RESULT"]).write_bytes(bytes([255]) * (3 << 20))
    sys.exit(0)
if scenario["index"] == settings.SLOW and rank == 1:
    print("it is slow", flush=True)
    time.sleep(600)
pathlib.Path("/tmp/left").open("x").close()  # nothing is there of the task before
if rank == 0:
    json.dump({"square": scenario["index"] ** 2, "size": os.environ["WINDTUNNEL_GANG_SIZE"]},
              open(os.environ["WINDTUNNEL_RESULT"], "w"))
"""

#: What a rank finds of the platform: its key, the memory of the process that has it, the folders beside its own.
STRANGER = """
import json, os, pathlib, signal
def tries(action):
    try:
        return action() or "done"
    except OSError as error:
        return type(error).__name__
print(json.dumps({
    "key": os.environ.get("WINDTUNNEL_GANG_KEY"),
    "environment": tries(lambda: pathlib.Path("/proc/1/environ").read_bytes().hex()),
    "memory": tries(lambda: open("/proc/1/mem", "rb").close()),
    "end": tries(lambda: os.kill(1, signal.SIGTERM)),
    "files": tries(lambda: open("/run/windtunnel/files/0/../mine", "w").close()),
    "listed": tries(lambda: os.listdir("/run/windtunnel/files")),
}, default=str))
"""

OpenSimulation = Callable[..., tuple[RunnerApi, Callable[[], GangPods]]]


@pytest.fixture
def open_gang_simulation(tmp_path: Path) -> Iterator[OpenSimulation]:
    """Function that opens a simulation and returns a function that starts its gangs; each gang ends with the test."""
    with contextlib.ExitStack() as stack:

        def open_simulation(
            total: int, slow: int = -1, program: str = PROGRAM, **definition: Any
        ) -> tuple[RunnerApi, Callable[[], GangPods]]:
            packed = zipped({"program.py": program.encode(), "settings.py": f"SLOW = {slow}\n".encode()})
            format = {"format": "gang_program"}
            runner_api = RunnerApi(
                tmp_path, total=total, play={"definition": definition}, model=packed, described=format
            )
            stack.callback(runner_api.close)
            gangs: list[GangPods] = []

            def start_gang() -> GangPods:
                gang = Gang(size=2, command=("python", "program.py"))
                gangs.append(stack.enter_context(pods(tmp_path / f"gang-{len(gangs)}", runner_api, gang)))
                return gangs[-1]

            return runner_api, start_gang

        yield open_simulation


def run_to_end(runner_api: RunnerApi, gang: GangPods) -> list[int]:
    """Do the dispatcher's part until the gang has ended; return the exit codes of its pods, the runner's first."""
    runner_api.settle_until_exit(gang.runner)
    return [gang.runner.returncode, *(replica.process.wait(TIMEOUT) for replica in gang.replicas)]


def test_a_gang_runs_every_task_once_and_a_failed_task_affects_no_other(open_gang_simulation: OpenSimulation) -> None:
    runner_api, start_gang = open_gang_simulation(8)
    first = start_gang()
    assert run_to_end(runner_api, first) == [0, 0, 0], first.output
    results = runner_api.results()
    assert [result["task"] for result in results] == list(range(8))
    # task 3: exit status 9; task 4: no result; task 5: a result that is not JSON and exceeds the size limit
    statuses = {3: "crashed", 4: "invalid", 5: "invalid"}
    assert [result["status"] for result in results] == [statuses.get(task, "ok") for task in range(8)], first.output
    assert results[7]["metrics"] == {"square": 49, "size": "2"}
    assert "rank 1 exited with status 9" in results[3]["error"]


def test_a_program_past_its_time_limit_is_ended_and_the_gang_continues(open_gang_simulation: OpenSimulation) -> None:
    runner_api, start_gang = open_gang_simulation(3, slow=1, task_patience=8.0)
    first = start_gang()
    assert run_to_end(runner_api, first) == [0, 0, 0], first.output
    assert [result["status"] for result in runner_api.results()] == ["ok", "timed_out", "ok"]


def test_a_gang_that_loses_a_pod_ends_and_the_next_gang_continues_after_the_reported_tasks(
    open_gang_simulation: OpenSimulation,
) -> None:
    runner_api, start_gang = open_gang_simulation(3, slow=1, task_patience=10.0)
    first = start_gang()
    wait_for_slow_task(first)
    first.replicas[1].kill()
    assert first.runner.wait(TIMEOUT) == 77, first.output
    assert first.replicas[0].process.wait(TIMEOUT) == 0
    runner_api.release()
    second = start_gang()
    assert run_to_end(runner_api, second) == [0, 0, 0], second.output
    assert [result["status"] for result in runner_api.results()] == ["ok", "timed_out", "ok"]


def test_a_gang_that_is_stopped_reports_finished_tasks_and_releases_the_rest(
    open_gang_simulation: OpenSimulation,
) -> None:
    runner_api, start_gang = open_gang_simulation(3, slow=1, task_patience=10.0)
    first = start_gang()
    wait_for_slow_task(first)
    first.runner.terminate()
    assert first.runner.wait(TIMEOUT) == 143, first.output
    assert [result["task"] for result in runner_api.results()] == [0]
    second = start_gang()  # the lease of the first gang is released, not left to expire
    assert run_to_end(runner_api, second) == [0, 0, 0], second.output
    assert [result["status"] for result in runner_api.results()] == ["ok", "timed_out", "ok"]


def test_a_rank_sees_neither_the_gangs_key_nor_changes_what_it_was_sent(open_gang_simulation: OpenSimulation) -> None:
    program = STRANGER.replace("print(", "if os.environ['WINDTUNNEL_RANK'] == '0': print(")
    runner_api, start_gang = open_gang_simulation(1, program=program)
    first = start_gang()
    assert run_to_end(runner_api, first) == [0, 0, 0], first.output
    [result] = runner_api.results()
    refused = dict.fromkeys(("environment", "memory", "end", "files", "listed"), "PermissionError")
    assert result["metrics"] == {"key": None, **refused}, result


def test_replicas_that_die_with_their_runner_leave_no_rank(open_gang_simulation: OpenSimulation) -> None:
    runner_api, start_gang = open_gang_simulation(3, slow=1, task_patience=10.0)
    first = start_gang()
    wait_for_slow_task(first)
    os.kill(first.runner.pid, signal.SIGKILL)
    assert [replica.process.wait(TIMEOUT) for replica in first.replicas] == [1, 1], first.output
    runner_api.release()


def wait_for_slow_task(gang: GangPods) -> None:
    """Wait until the gang runs the task that takes long."""
    until(lambda: "it is slow" in gang.output, TIMEOUT, lambda: gang.output)
