"""The runner as a process, against the real leases; its evaluators and model servers are doubles that misbehave."""

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

from runtimes.harness.runner.framed_socket import Batch
from runtimes.harness.runner.lease_client import LeaseClient
from runtimes.harness.runner.processes import ChildProcess, WorkerSpec
from runtimes.harness.runner.runner_api_client import Credentials, LaunchOver
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi
from tests.waiting import until
from workers.gang_runner import GangPage

ROOT = Path(__file__).parents[2]
STUB_HARNESS = Path(__file__).parent / "stub_harness" / "harness"


class Runner:
    """A runner's process, and the agent's end of its control socket."""

    def __init__(self, folder: Path, workers: int) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        site = f"{sysconfig.get_path('purelib')}:{ROOT}"
        kit = WorkerSpec(
            python=sys.executable,
            harness=str(STUB_HARNESS),
            dataset=str(folder),
            evaluator_site=site,
            model_server_site=site,
            format="python",
            isolation="launch",
            sandbox=None,
        )
        told = {"control": theirs.fileno(), "worker_spec": kit.describe(), "workers": workers}
        code = "from runtimes.harness.runner.runner import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(told)], pass_fds=(theirs.fileno(),), cwd=ROOT
        )
        theirs.close()
        self.control = ours
        self.workers = workers

    def launch(self, url: str, token: str = TOKEN) -> None:
        told = {"launch": LAUNCH, "token": token, "url": url, "workers": self.workers, "model": None}
        self.control.send(json.dumps(told).encode())

    def children(self) -> list[int]:
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in task.read_text().split()]

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.control.close()


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    made = Runner(tmp_path, workers=2)
    yield made
    made.end()


@pytest.fixture
def runner_api(tmp_path: Path) -> Iterator[Callable[..., RunnerApi]]:
    made: list[RunnerApi] = []

    def make(total: int = 1000, ttl: float = 10.0, **faults: Any) -> RunnerApi:
        made.append(RunnerApi(tmp_path, total=total, play={"faults": faults}, ttl=ttl))
        return made[-1]

    yield make
    for one in made:
        one.close()


def work_off(runner: Runner, one: RunnerApi) -> None:
    """Play the dispatcher until the runner has seen the launch through."""
    one.settle_until_exit(runner.process)


def test_every_task_gets_one_result_and_the_runner_ends(runner: Runner, runner_api: Callable[..., RunnerApi]) -> None:
    one = runner_api(total=5000)
    runner.launch(one.url)
    work_off(runner, one)
    assert runner.process.returncode == 0
    assert [result["task"] for result in one.results()] == list(range(5000))
    assert "stub evaluator at work" in one.logs()


def test_a_warm_runner_has_its_evaluators_and_model_servers_before_it_knows_for_what(runner: Runner) -> None:
    until(lambda: len(runner.children()) == 5)  # two evaluators, two model servers, a model server in reserve


def test_a_evaluator_that_dies_is_witnessed_and_replaced(runner: Runner, runner_api: Callable[..., RunnerApi]) -> None:
    one = runner_api(total=400, die_once=130)
    runner.launch(one.url)
    work_off(runner, one)
    results = one.results()
    assert [result["task"] for result in results] == list(range(400))
    assert {result["status"] for result in results} == {"ok"}
    assert "death" in one.asked
    assert "the simulator's process ended: killed by SIGKILL" in one.logs()


def test_a_task_that_kills_its_evaluator_three_times_is_crashed_and_its_neighbours_are_not(
    runner: Runner, runner_api: Callable[..., RunnerApi]
) -> None:
    one = runner_api(total=300, die=77)
    runner.launch(one.url)
    work_off(runner, one)
    assert {result["task"] for result in one.results() if result["status"] == "crashed"} == {77}
    assert len(one.results()) == 300
    assert one.asked.count("death") <= 6


def test_a_evaluator_that_hangs_is_ended_for_it(runner: Runner, runner_api: Callable[..., RunnerApi]) -> None:
    one = runner_api(total=40, ttl=1.0, hang=5)
    runner.launch(one.url)
    work_off(runner, one)
    assert {result["task"] for result in one.results() if result["status"] == "crashed"} == {5}


def test_a_lost_model_server_is_replaced_and_its_end_told(runner: Runner, runner_api: Callable[..., RunnerApi]) -> None:
    one = runner_api(total=300, lose_model_server=20)
    runner.launch(one.url)
    work_off(runner, one)
    assert len(one.results()) == 300
    assert "death" not in one.asked


def test_a_model_that_does_not_fit_fails_the_simulation_at_once(
    runner: Runner, runner_api: Callable[..., RunnerApi]
) -> None:
    one = runner_api(refuse="the model's input is float32[1,30]")
    runner.launch(one.url)
    assert runner.process.wait(20) == 0
    assert one.state() == ("failed", "the model's input is float32[1,30]")


def test_a_launch_that_is_over_ends_the_runner(runner: Runner, runner_api: Callable[..., RunnerApi]) -> None:
    one = runner_api(total=100_000, late=0.01)
    runner.launch(one.url)
    until(lambda: "report" in one.asked)
    children = runner.children()
    one.cancel()
    assert runner.process.wait(20) == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_a_wrong_token_ends_the_runner(runner: Runner, runner_api: Callable[..., RunnerApi]) -> None:
    one = runner_api()
    runner.launch(one.url, token="guessed")
    assert runner.process.wait(20) == 0
    assert one.results() == []


def test_a_surface_that_goes_away_for_a_while_only_delays(runner: Runner, runner_api: Callable[..., RunnerApi]) -> None:
    one = runner_api(total=600, late=0.002)
    runner.launch(one.url)
    until(lambda: "report" in one.asked)
    one.shut()
    one.hang_up(5)  # the runner tries again, each time after a longer pause
    one.open()
    work_off(runner, one)
    assert [result["task"] for result in one.results()] == list(range(600))
    assert "death" not in one.asked


def test_nothing_outlives_a_runner_that_is_killed(runner: Runner, runner_api: Callable[..., RunnerApi]) -> None:
    one = runner_api(total=100_000, late=0.01)
    runner.launch(one.url)
    until(lambda: "report" in one.asked)
    children = runner.children()
    os.kill(runner.process.pid, signal.SIGKILL)
    runner.process.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


def test_a_runner_that_stops_reports_nothing_any_more_and_bears_witness_of_no_death(
    runner_api: Callable[..., RunnerApi],
) -> None:
    one = runner_api()
    stop = threading.Event()
    holder = LeaseClient(Credentials(url=one.url, launch=LAUNCH, token=TOKEN), stop).holder("0")
    held = holder.next(GangPage())
    assert held is not None
    stop.set()  # what dies from here on was ended by the runner itself
    results = Batch(since=held.cursor, to=held.stop, lines=memoryview(b""))
    with pytest.raises(LaunchOver):
        holder.report(held, results)
    with pytest.raises(LaunchOver):
        holder.report_death(held, held.cursor, "killed by SIGKILL")
    assert one.asked == ["lease"]


def test_a_runner_whose_agent_is_gone_ends(runner: Runner) -> None:
    until(lambda: len(runner.children()) == 5)
    runner.control.close()
    assert runner.process.wait(20) == 0


def test_another_process_of_the_same_user_cannot_read_the_token(runner: Runner) -> None:
    until(lambda: len(runner.children()) > 0)
    owner = Path(f"/proc/{runner.process.pid}/mem").stat().st_uid
    assert owner == 0  # a process that is not dumpable belongs to root there, whoever it runs as


def test_ending_a_process_that_has_just_been_waited_for_is_harmless() -> None:
    popen = subprocess.Popen([sys.executable, "-c", ""])
    output, end = os.pipe()
    os.close(end)
    process = ChildProcess("one", popen, output)
    popen.wait()  # as the thread that reaps does, a moment before it says so
    process.kill()
    assert process.reap() == "it exited with code 0"
