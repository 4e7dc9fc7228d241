"""A gang and its runner against the real runner API: every task has one result, whichever process ends."""

import contextlib
import io
import json
import os
import secrets
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_ports
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi
from tests.waiting import until

ROOT = Path(__file__).parents[2]
TIMEOUT = 90
#: The program of every replica; the first replica writes the result.
PROGRAM = """
import json, os, pathlib, sys, time
scenario = json.load(open(os.environ["WINDTUNNEL_SCENARIO"]))
rank = int(os.environ["WINDTUNNEL_GANG_INDEX"])
import settings
if scenario["index"] == 3 and rank == 1:
    sys.exit(9)
if scenario["index"] == 4:
    sys.exit(0)
if scenario["index"] == 5:
    pathlib.Path(os.environ["WINDTUNNEL_RESULT"]).write_bytes(bytes([255]) * (3 << 20))
    sys.exit(0)
if scenario["index"] == settings.SLOW and rank == 1:
    time.sleep(600)
if rank == 0:
    json.dump({"square": scenario["index"] ** 2, "size": os.environ["WINDTUNNEL_GANG_SIZE"]},
              open(os.environ["WINDTUNNEL_RESULT"], "w"))
"""


def packed_program(slow: int = -1) -> bytes:
    """Return a zip of the program and a module that it imports."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("program.py", PROGRAM)
        archive.writestr("settings.py", f"SLOW = {slow}\n")
    return buffer.getvalue()


class GangProcesses:
    """The processes of a gang of two: the runner, the leader and two replicas."""

    def __init__(self, folder: Path, url: str) -> None:
        folder.mkdir()
        self.folder = folder
        [port] = free_ports(1)
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "WINDTUNNEL_GANG_KEY": secrets.token_hex()}
        environment |= {"WINDTUNNEL_GANG_LEADER": f"127.0.0.1:{port}", "WINDTUNNEL_GANG_SLICES": "1"}
        self.environment = environment | {"WINDTUNNEL_GANG_SIZE": "2", "WINDTUNNEL_GANG_SLICE": "0"}
        (folder / "token").write_text(TOKEN)
        document: dict[str, Any] = {
            "id": LAUNCH,
            "url": url,
            "workers": 1,
            "format": "python",
            "token_file": str(folder / "token"),
        }
        document |= {
            "files": str(folder / "files"),
            "container_users": {"evaluator": -1, "model_server": os.getuid()},
            "name": folder.name,
        }
        (folder / "launch.json").write_text(json.dumps(document))
        socket = str(folder / "gang.sock")
        self.runner = self._start("runner", ["-m", "workers.gang_runner", "--launch", str(folder / "launch.json")])
        self.leader = self._start("leader", ["lead"], "--tasks", socket)
        command = [sys.executable, "program.py"]
        self.replicas = [self._start(f"replica-{n}", ["follow", *command], number=n) for n in range(2)]

    def _start(self, name: str, arguments: list[str], *options: str, number: int = 0) -> "subprocess.Popen[str]":
        if name == "runner":
            arguments = [*arguments, "--sockets", str(self.folder)]
        else:
            code = "import pathlib, signal, sys; from runtimes.harness.gang import replica as gang; "
            code += "signal.signal(15, gang.stop); "
            code += "sys.exit(gang.main(sys.argv[2:], pathlib.Path(sys.argv[1])))"
            arguments = ["-c", code, str(self.folder / name), *options, *arguments]
        with open(self.folder / f"{name}.txt", "w") as output:
            return subprocess.Popen(
                [sys.executable, *arguments],
                env=self.environment | {"WINDTUNNEL_GANG_INDEX": str(number)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def exit_codes(self) -> tuple[int, int, list[int]]:
        """Wait for the end of all processes; return the exit codes of runner, leader and replicas."""
        codes = (
            self.runner.wait(TIMEOUT),
            self.leader.wait(TIMEOUT),
            [process.wait(TIMEOUT) for process in self.replicas],
        )
        return codes

    def end(self) -> None:
        """Kill the processes that still run."""
        for process in (self.runner, self.leader, *self.replicas):
            process.kill()
            process.wait()

    @property
    def output(self) -> str:
        """The output of all processes."""
        return "\n".join(f"{path.name}: {path.read_text()}" for path in sorted(self.folder.glob("*.txt")))


OpenSimulation = Callable[..., tuple[RunnerApi, Callable[[], GangProcesses]]]


@pytest.fixture
def open_gang_simulation(tmp_path: Path) -> Iterator[OpenSimulation]:
    """Function that opens a simulation and returns a function that starts its gangs; each gang ends with the test."""
    with contextlib.ExitStack() as stack:

        def open_simulation(
            total: int, slow: int = -1, **definition: Any
        ) -> tuple[RunnerApi, Callable[[], GangProcesses]]:
            runner_api = RunnerApi(tmp_path, total=total, play={"definition": definition}, model=packed_program(slow))
            stack.callback(runner_api.close)
            gangs: list[GangProcesses] = []

            def start_gang() -> GangProcesses:
                gangs.append(GangProcesses(tmp_path / f"gang-{len(gangs)}", runner_api.url))
                stack.callback(gangs[-1].end)
                return gangs[-1]

            return runner_api, start_gang

        yield open_simulation


def run_to_end(runner_api: RunnerApi, gang: GangProcesses) -> tuple[int, int, list[int]]:
    """Do the dispatcher's part until the gang has exited; return the exit codes."""
    runner_api.settle_until_exit(gang.runner)
    return gang.exit_codes()


def test_a_gang_runs_every_task_once_and_a_failed_task_affects_no_other(open_gang_simulation: OpenSimulation) -> None:
    runner_api, start_gang = open_gang_simulation(8)
    first = start_gang()
    assert run_to_end(runner_api, first) == (0, 0, [0, 0]), first.output
    results = runner_api.results()
    assert [result["task"] for result in results] == list(range(8))
    # task 3: exit status 9; task 4: no result; task 5: a result that is not JSON and exceeds the size limit
    statuses = {3: "crashed", 4: "invalid", 5: "invalid"}
    assert [result["status"] for result in results] == [statuses.get(task, "ok") for task in range(8)], first.output
    assert results[7]["metrics"] == {"square": 49, "size": "2"}
    assert "exited with status 9" in results[3]["error"]


def test_a_program_past_its_time_limit_is_ended_and_the_gang_continues(open_gang_simulation: OpenSimulation) -> None:
    runner_api, start_gang = open_gang_simulation(3, slow=1, task_patience=2.0)
    first = start_gang()
    assert run_to_end(runner_api, first) == (0, 0, [0, 0]), first.output
    assert [result["status"] for result in runner_api.results()] == ["ok", "timed_out", "ok"]


def test_a_gang_that_loses_a_replica_ends_and_the_next_gang_continues_after_the_reported_tasks(
    open_gang_simulation: OpenSimulation,
) -> None:
    runner_api, start_gang = open_gang_simulation(3, slow=1, task_patience=10.0)
    first = start_gang()
    wait_for_slow_task(first)
    first.replicas[1].kill()
    assert first.exit_codes() == (77, 1, [0, -9]), first.output
    runner_api.release()
    second = start_gang()
    assert run_to_end(runner_api, second) == (0, 0, [0, 0]), second.output
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
    assert run_to_end(runner_api, second) == (0, 0, [0, 0]), second.output
    assert [result["status"] for result in runner_api.results()] == ["ok", "timed_out", "ok"]


def wait_for_slow_task(gang: GangProcesses) -> None:
    """Wait until the gang runs the task that takes long."""
    scenario = gang.folder / "replica-1" / "scenario.json"
    until(lambda: scenario.exists() and json.loads(scenario.read_text() or "{}").get("index") == 1)
