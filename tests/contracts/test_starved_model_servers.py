"""A busy machine changes no result: a model server that is not run does not miss its deadline, one that waits does."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from runtimes.harness.runner.process_times import process_times
from runtimes.harness.runner.processes import ChildProcess
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of, worker_spec
from tests.waiting import until

#: Computes for 60 ms of processor time in every action, on as many threads as are asked for, then sleeps.
MODEL = """
import threading, time
class Model:
    def act(self, observation):
        def compute():
            until = time.thread_time() + {compute}
            while time.thread_time() < until:
                pass
        threads = [threading.Thread(target=compute) for _ in range({threads})]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        time.sleep({sleep})
        return observation
"""
DEADLINE = 0.5
QUOTA, PERIOD = 10_000, 100_000  # microseconds
CPU_GROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))


def model(compute: float = 0.06, threads: int = 1, sleep: float = 0.0) -> str:
    return MODEL.format(compute=compute, threads=threads, sleep=sleep)


@pytest.fixture(params=["launch", "scenario"])
def pair_of(request: pytest.FixtureRequest) -> Any:
    """Start an evaluator with a model server of a model."""

    def start(source: str) -> Any:
        spec = worker_spec(isolation=request.param)
        return evaluator_pair(spec, source, play_of(deadline=DEADLINE, isolation=request.param))

    return start


#: Waits in the kernel for three deadlines, as for a disk: posix_spawn(3) returns when its child has opened the pipe.
BLOCKED_MODEL = """
import os, time
class Model:
    def act(self, observation):
        opener = os.fork()
        if opener == 0:
            time.sleep({seconds})
            os.open({pipe!r}, os.O_WRONLY)
            os._exit(0)
        opened = [(os.POSIX_SPAWN_OPEN, 9, {pipe!r}, os.O_RDONLY, 0)]
        spawned = os.posix_spawn("/bin/true", ["true"], {{}}, file_actions=opened)
        for child in (opener, spawned):
            os.waitpid(child, 0)
        {after}
        return observation
"""


def statuses(pair: EvaluatorPair, tasks: int = 2) -> list[str]:
    return [result["status"] for result in pair.run(0, tasks)]


@contextmanager
def outranked(pair: EvaluatorPair, *, evaluator: bool = False, idle: bool = False) -> Iterator[None]:
    """Run the model server, or the evaluator, on one core, at the lowest priority, beside processes that compute.

    ``idle``: below the lowest, so that it is not run at all for seconds.
    """
    process = pair.evaluator.process if evaluator else pair.model_servers[0].process
    core = min(os.sched_getaffinity(0))
    process.pin(core)
    if evaluator or idle:
        os.sched_setscheduler(process.popen.pid, os.SCHED_IDLE, os.sched_param(0))  # type: ignore[attr-defined]
    else:
        os.setpriority(os.PRIO_PGRP, process.popen.pid, 19)  # type: ignore[attr-defined]
    program = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    try:
        until(lambda: all(computes(rival.pid) for rival in busy), message="the rivals do not compute")
        yield
    finally:
        for rival in busy:
            rival.kill()
            rival.wait()


def computes(pid: int) -> bool:
    times = process_times(pid)
    return times is not None and sum(cpu for cpu, _ in times["threads"].values()) > 0.05


@contextmanager
def limited(pair: EvaluatorPair) -> Iterator[None]:
    """Run the model server in a control group that may use a tenth of one processor."""
    for root in CPU_GROUPS:
        group = root / f"windtunnel-test-{os.getpid()}"
        with suppress(OSError):
            group.mkdir()
            break
    else:
        pytest.skip("no control groups can be made here")
    try:
        try:
            if (group / "cpu.max").exists():
                (group / "cpu.max").write_text(f"{QUOTA} {PERIOD}")
            else:
                (group / "cpu.cfs_quota_us").write_text(str(QUOTA))
            for name in os.listdir("/proc"):
                if name.isdigit() and of_group(int(name), pair.model_servers[0].process.popen.pid):  # type: ignore[attr-defined]
                    (group / "cgroup.procs").write_text(name)
        except OSError as error:
            pytest.skip(f"no processor limit can be set here: {error}")
        yield
    finally:
        until(lambda: removed(group), message="the control group is not removed")


def removed(group: Path) -> bool:
    """Move the processes of a control group to its parent, and try to remove it."""
    with suppress(OSError):
        for name in (group / "cgroup.procs").read_text().split():
            (group.parent / "cgroup.procs").write_text(name)
        group.rmdir()
    return not group.exists()


def of_group(pid: int, leader: int) -> bool:
    with suppress(ProcessLookupError):
        return os.getpgid(pid) == leader
    return False


def test_a_model_server_that_is_hardly_run_keeps_its_deadline(pair_of: Any) -> None:
    with pair_of(model()) as pair, outranked(pair):
        assert statuses(pair) == ["ok", "ok"]


def test_a_model_server_that_is_not_run_at_all_for_longer_than_its_deadline_keeps_it() -> None:
    with evaluator_pair(worker_spec(), model(compute=0.004), play_of(deadline=0.2)) as pair, outranked(pair, idle=True):
        assert statuses(pair, 1) == ["ok"]


def test_a_model_server_with_a_tenth_of_a_processor_keeps_its_deadline(pair_of: Any) -> None:
    with pair_of(model(compute=0.12)) as pair, limited(pair):
        assert statuses(pair) == ["ok", "ok"]


@pytest.mark.parametrize(
    "source",
    [model(sleep=DEADLINE * 1.3), model(sleep=3600.0), model(compute=3600.0), model(compute=3600.0, threads=4)],
    ids=["answers late", "sleeps", "computes", "computes on four threads"],
)
def test_a_model_that_sleeps_or_computes_too_long_misses_its_deadline(source: str) -> None:
    with evaluator_pair(worker_spec(), source, play_of(deadline=DEADLINE)) as pair:
        (result,) = pair.run(0, 1)
    assert (result["status"], result["error"]) == ("timed_out", "no answer within 0.5 s")


def test_a_model_that_computes_too_long_misses_its_deadline_also_on_a_busy_core() -> None:
    with evaluator_pair(worker_spec(), model(compute=3600.0), play_of(deadline=0.05)) as pair, outranked(pair):
        (result,) = pair.run(0, 1)
    assert result["status"] == "timed_out"


def test_a_model_server_that_stopped_itself_misses_its_deadline() -> None:
    source = "import os\nclass Model:\n    def act(self, observation):\n        os.kill(os.getpid(), 19)\n"
    with evaluator_pair(worker_spec(), source, play_of(deadline=DEADLINE)) as pair:
        assert statuses(pair, 1) == ["timed_out"]


@pytest.mark.parametrize(("after", "status"), [("pass", "ok"), ("time.sleep(3600)", "timed_out")])
def test_a_model_server_that_waits_for_a_disk_keeps_its_deadline_and_one_that_then_sleeps_misses_it(
    pair_of: Any, tmp_path: Path, after: str, status: str
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    source = BLOCKED_MODEL.format(pipe=str(pipe), seconds=3 * DEADLINE, after=after)
    with pair_of(source) as pair:
        assert statuses(pair, 1) == [status]


def test_an_evaluator_that_is_hardly_run_does_not_blame_the_model() -> None:
    play = play_of(deadline=0.02)
    with evaluator_pair(worker_spec(), model(compute=0.0, sleep=0.004), play) as pair, outranked(pair, evaluator=True):
        assert set(statuses(pair, 30)) == {"ok"}


def test_an_evaluator_that_was_stopped_while_it_waited_does_not_blame_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a machine that was stopped, which counts no run delay: the answer came while nothing could take it."""
    deadline = 2.0
    with evaluator_pair(worker_spec(), model(compute=0.0, sleep=deadline / 2), play_of(deadline=deadline)) as pair:
        evaluator, model_server = pair.evaluator.process, pair.model_servers[-1].process
        assert isinstance(evaluator, ChildProcess)
        stopping = threading.Thread(target=stopped_for, args=(evaluator.pid, 2 * deadline))
        told = model_server.times

        def times() -> dict[str, Any] | None:
            """Tell the evaluator, which looks for the first time and waits then, and stop it in that wait."""
            if stopping.ident is None:
                stopping.start()
            return told()

        monkeypatch.setattr(model_server, "times", times)
        assert statuses(pair, 1) == ["ok"]
        stopping.join()


def stopped_for(pid: int, seconds: float) -> None:
    time.sleep(0.05)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


def test_a_slow_model_is_blamed_also_beside_an_evaluator_that_is_hardly_run() -> None:
    with (
        evaluator_pair(worker_spec(), model(sleep=DEADLINE * 4), play_of(deadline=DEADLINE)) as pair,
        outranked(pair, evaluator=True),
    ):
        assert statuses(pair, 1) == ["timed_out"]
