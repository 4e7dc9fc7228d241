"""The runner as a process, against the real leases, with stub evaluators and model servers that fail on purpose."""

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtimes.harness.gang.gang_runner import GangPage
from runtimes.harness.runner.framed_socket import Batch
from runtimes.harness.runner.lease_client import LeaseClient
from runtimes.harness.runner.processes import ChildProcess, WorkerSpec
from runtimes.harness.runner.runner_api_client import Credentials, LaunchOver
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi
from tests.waiting import until

ROOT = Path(__file__).parents[2]
STUB_HARNESS = Path(__file__).parent / "stub_harness" / "harness"


class Runner:
    """A runner's process, and the agent's end of its control socket."""

    def __init__(self, folder: Path, workers: int) -> None:
        agent_end, runner_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        site = f"{sysconfig.get_path('purelib')}:{ROOT}"
        spec = WorkerSpec(
            python=sys.executable,
            harness=str(STUB_HARNESS),
            dataset=str(folder),
            evaluator_site=site,
            model_server_site=site,
            format="python",
            isolation="launch",
            sandbox=None,
        )
        config = {"control": runner_end.fileno(), "worker_spec": spec.describe(), "workers": workers}
        code = "from runtimes.harness.runner.runner import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(config)], pass_fds=(runner_end.fileno(),), cwd=ROOT
        )
        runner_end.close()
        self.control = agent_end
        self.workers = workers

    def launch(self, url: str, token: str = TOKEN) -> None:
        message = {"launch": LAUNCH, "token": token, "url": url, "workers": self.workers, "model": None}
        self.control.send(json.dumps(message).encode())

    def children(self) -> list[int]:
        children_file = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children_file.read_text().split()]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.control.close()


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    process = Runner(tmp_path, workers=2)
    yield process
    process.end()


@pytest.fixture
def start_runner_api(tmp_path: Path) -> Iterator[Callable[..., RunnerApi]]:
    apis: list[RunnerApi] = []

    def make(total: int = 1000, ttl: float = 10.0, **faults: Any) -> RunnerApi:
        apis.append(RunnerApi(tmp_path, total=total, play={"faults": faults}, ttl=ttl))
        return apis[-1]

    yield make
    for api in apis:
        api.close()


def run_to_end(runner: Runner, runner_api: RunnerApi) -> None:
    """Do the dispatcher's part until the runner has exited."""
    runner_api.settle_until_exit(runner.process)


def test_every_task_gets_one_result_and_the_runner_ends(
    runner: Runner, start_runner_api: Callable[..., RunnerApi]
) -> None:
    runner_api = start_runner_api(total=5000)
    runner.launch(runner_api.url)
    run_to_end(runner, runner_api)
    assert runner.process.returncode == 0
    assert [result["task"] for result in runner_api.results()] == list(range(5000))
    assert "stub evaluator at work" in runner_api.logs()


def test_a_warm_runner_has_its_evaluators_and_model_servers_before_its_launch(runner: Runner) -> None:
    until(lambda: len(runner.children()) == 5)  # two evaluators, two model servers, a spare model server


def test_the_death_of_an_evaluator_is_reported_and_the_evaluator_replaced(
    runner: Runner, start_runner_api: Callable[..., RunnerApi]
) -> None:
    runner_api = start_runner_api(total=400, die_once=130)
    runner.launch(runner_api.url)
    run_to_end(runner, runner_api)
    results = runner_api.results()
    assert [result["task"] for result in results] == list(range(400))
    assert {result["status"] for result in results} == {"ok"}
    assert "death" in runner_api.requests
    assert "the simulator's process ended: killed by SIGKILL" in runner_api.logs()


def test_a_task_that_kills_its_evaluator_three_times_is_crashed_and_no_other_task_is(
    runner: Runner, start_runner_api: Callable[..., RunnerApi]
) -> None:
    runner_api = start_runner_api(total=300, die=77)
    runner.launch(runner_api.url)
    run_to_end(runner, runner_api)
    assert {result["task"] for result in runner_api.results() if result["status"] == "crashed"} == {77}
    assert len(runner_api.results()) == 300
    assert runner_api.requests.count("death") <= 6


def test_an_evaluator_that_hangs_is_killed(runner: Runner, start_runner_api: Callable[..., RunnerApi]) -> None:
    runner_api = start_runner_api(total=40, ttl=1.0, hang=5)
    runner.launch(runner_api.url)
    run_to_end(runner, runner_api)
    assert {result["task"] for result in runner_api.results() if result["status"] == "crashed"} == {5}
    assert (
        "the simulator's process ended: killed by the platform: it spent more than 1 s on task 5" in runner_api.logs()
    )


def test_a_lost_model_server_is_replaced_without_a_report_of_a_death(
    runner: Runner, start_runner_api: Callable[..., RunnerApi]
) -> None:
    runner_api = start_runner_api(total=300, lose_model_server=20)
    runner.launch(runner_api.url)
    run_to_end(runner, runner_api)
    assert len(runner_api.results()) == 300
    assert "death" not in runner_api.requests


def test_a_model_with_the_wrong_input_shape_fails_the_simulation_at_once(
    runner: Runner, start_runner_api: Callable[..., RunnerApi]
) -> None:
    runner_api = start_runner_api(refuse="the model's input is float32[1,30]")
    runner.launch(runner_api.url)
    assert runner.process.wait(20) == 0
    assert runner_api.state() == ("failed", "the model's input is float32[1,30]")


def test_a_launch_that_is_over_ends_the_runner(runner: Runner, start_runner_api: Callable[..., RunnerApi]) -> None:
    runner_api = start_runner_api(total=100_000, late=0.01)
    runner.launch(runner_api.url)
    until(lambda: "report" in runner_api.requests)
    children = runner.children()
    runner_api.cancel()
    assert runner.process.wait(20) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_a_wrong_token_ends_the_runner(runner: Runner, start_runner_api: Callable[..., RunnerApi]) -> None:
    runner_api = start_runner_api()
    runner.launch(runner_api.url, token="guessed")
    assert runner.process.wait(20) == 0
    assert runner_api.results() == []


def test_an_outage_of_the_runner_api_delays_a_launch_and_loses_nothing(
    runner: Runner, start_runner_api: Callable[..., RunnerApi]
) -> None:
    runner_api = start_runner_api(total=600, late=0.002)
    runner.launch(runner_api.url)
    until(lambda: "report" in runner_api.requests)
    runner_api.stop_listening()
    runner_api.close_connections(5)  # the runner retries, each time after a longer pause
    runner_api.listen()
    run_to_end(runner, runner_api)
    assert [result["task"] for result in runner_api.results()] == list(range(600))
    assert "death" not in runner_api.requests


def test_no_process_outlives_a_killed_runner(runner: Runner, start_runner_api: Callable[..., RunnerApi]) -> None:
    runner_api = start_runner_api(total=100_000, late=0.01)
    runner.launch(runner_api.url)
    until(lambda: "report" in runner_api.requests)
    children = runner.children()
    os.kill(runner.process.pid, signal.SIGKILL)
    runner.process.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


def test_a_runner_that_stops_reports_neither_results_nor_deaths(
    start_runner_api: Callable[..., RunnerApi],
) -> None:
    runner_api = start_runner_api()
    stop = threading.Event()
    holder = LeaseClient(Credentials(url=runner_api.url, launch=LAUNCH, token=TOKEN), stop).holder("0")
    lease = holder.next(GangPage())
    assert lease is not None
    stop.set()  # from here on, the runner itself ends its processes
    results = Batch(since=lease.cursor, to=lease.stop, lines=memoryview(b""))
    with pytest.raises(LaunchOver):
        holder.report(lease, results)
    with pytest.raises(LaunchOver):
        holder.report_death(lease, lease.cursor, "killed by SIGKILL")
    assert runner_api.requests == ["lease"]


def test_a_runner_ends_when_its_agent_closes_the_control_socket(runner: Runner) -> None:
    until(lambda: len(runner.children()) == 5)
    runner.control.close()
    assert runner.process.wait(20) == 0


def test_another_process_of_the_same_user_cannot_read_the_token(runner: Runner) -> None:
    until(lambda: len(runner.children()) > 0)
    owner = Path(f"/proc/{runner.process.pid}/mem").stat().st_uid
    assert owner == 0  # /proc/PID/mem of a process that is not dumpable belongs to root, whichever user it runs as


def test_ending_a_process_that_has_just_been_waited_for_is_harmless() -> None:
    popen = subprocess.Popen([sys.executable, "-c", ""])
    output, end = os.pipe()
    os.close(end)
    process = ChildProcess("child", popen, output)
    popen.wait()  # as the reaping thread does, a moment before it stores the exit code
    process.kill("it is dismissed")
    assert process.reap() == "it exited with code 0"
