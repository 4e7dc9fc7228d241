"""Slurm executor on a real Slurm: behaviour beyond the contract of all executors, mostly with jobs that wait."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from common.errors import PlatformError, Unsupported
from core.domain.scheduling.launches import Gang, Launch, LaunchStatus, Phase, Placement
from datasets.catalogue import datasets
from tests.slurm import ROOT, Slurm, executor_on, prepared
from tests.slurm import own_slurm as own_slurm  # a fixture
from tests.slurm import shared_slurm as shared_slurm
from tests.slurm import slurm as slurm
from tests.system.runner_api import LAUNCH, SIMULATION, TOKEN, RunnerApi
from tests.waiting import until
from workers.executors.slurm.executor import SlurmExecutor

ID = "s1x1x0"
MODEL = (ROOT / "runtimes/harness/simulators/noop/baselines/zero.py").read_bytes()
TASKS = 1000
VERSION = datasets()["noop"].version
WAIT_SCRIPT = "echo waiting; exec sleep 600"


def launch_of(id: str = ID, **changes: Any) -> Launch:
    fields: dict[str, Any] = {"id": id, "simulation_id": "s1", "attempt": 1, "url": "http://127.0.0.1:1", "workers": 2}
    fields |= {
        "runtime": "python",
        "format": "python",
        "dataset": "noop",
        "version": VERSION,
        "token": "secret-token",
    }
    return Launch(**(fields | {"model_digest": "d", "model_key": "m"} | changes))


OpenExecutor = Callable[..., SlurmExecutor]


def executor_opener(slurm: Slurm, folder: Path) -> OpenExecutor:
    """Return a function that opens an executor whose jobs run a shell script in place of runners."""

    def open_executor(script: str = WAIT_SCRIPT, name: str = "home", **options: Any) -> SlurmExecutor:
        program = folder / "program"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return executor_on(slurm, folder / name, prepared(), python=str(program), **options)

    return open_executor


@pytest.fixture
def open_executor(slurm: Slurm, tmp_path: Path) -> OpenExecutor:
    return executor_opener(slurm, tmp_path)


@pytest.fixture
def runner_api(tmp_path: Path) -> Iterator[RunnerApi]:
    """A runner API with tasks of some milliseconds."""
    definition = dict(datasets()["noop"].definition)
    play = {"definition": definition, "deadline": 5.0, "isolation": "launch", "params": {"sleep_ms": 5}}
    api = RunnerApi(tmp_path, total=TASKS, play=play, ttl=2.0, model=MODEL)
    yield api
    api.close()


@pytest.fixture
def runner_executor(slurm: Slurm, tmp_path: Path) -> SlurmExecutor:
    """An executor whose jobs are real runners."""
    return executor_on(slurm, tmp_path / "home", prepared())


def finished_tasks(runner_api: RunnerApi) -> int:
    """Return the number of tasks with a result."""
    with runner_api.database.read() as connection:
        return int(connection.execute(text("SELECT coalesce(sum(stop - start), 0) FROM segments")).scalar_one())


def status_of(executor: SlurmExecutor, id: str = ID) -> LaunchStatus | None:
    return executor.observe([id]).get(id)


def wait_for(executor: SlurmExecutor, phase: Phase, id: str = ID) -> LaunchStatus:
    """Wait until a launch has this phase; return its status."""
    until(lambda: (status := status_of(executor, id)) is not None and status.phase is phase)
    status = status_of(executor, id)
    assert status is not None
    return status


def jobs(slurm: Slurm, state: str = "PENDING,CONFIGURING,RUNNING") -> list[str]:
    return slurm.ask("squeue", "--noheader", "--array", f"--states={state}", "--format=%j").split()


def test_a_restarted_controller_finds_the_launch_again(own_slurm: Slurm, tmp_path: Path) -> None:
    executor = executor_opener(own_slurm, tmp_path)(f"until test -e {tmp_path}/go; do sleep 0.1; done", patience=3)
    executor.submit(launch_of())
    wait_for(executor, Phase.RUNNING)
    own_slurm.stop("slurmctld", sign=signal.SIGTERM)
    with pytest.raises(OSError):
        executor.observe([ID])
    own_slurm.start("slurmctld")
    until(lambda: bool(own_slurm.ask("sinfo")))
    assert wait_for(executor, Phase.RUNNING).id == ID
    (tmp_path / "go").touch()
    assert wait_for(executor, Phase.ENDED).exit == 0


def test_the_exit_code_of_jobs_that_ended_while_the_controller_was_down_is_observed(
    own_slurm: Slurm, tmp_path: Path
) -> None:
    executor = executor_opener(own_slurm, tmp_path)(f"until test -e {tmp_path}/go; do sleep 0.1; done")
    executor.submit(launch_of())
    wait_for(executor, Phase.RUNNING)
    own_slurm.stop("slurmctld", sign=signal.SIGTERM)
    (tmp_path / "go").touch()
    folder = tmp_path / "home/slurm/slurm" / ID
    until(lambda: len(list(folder.glob("task.*/exit"))) == 2)
    own_slurm.start("slurmctld")
    until(lambda: bool(own_slurm.ask("sinfo")))
    assert status_of(executor) == LaunchStatus(id=ID, phase=Phase.ENDED, exit=0)


def test_a_hanging_controller_is_a_timeout(own_slurm: Slurm, tmp_path: Path) -> None:
    executor = executor_opener(own_slurm, tmp_path)(patience=1)
    own_slurm.freeze("slurmctld")
    for call in (lambda: executor.submit(launch_of()), lambda: executor.orphans([])):
        with pytest.raises(TimeoutError):
            call()


def test_without_munge_calls_fail_and_nothing_is_submitted_twice(own_slurm: Slurm, tmp_path: Path) -> None:
    executor = executor_opener(own_slurm, tmp_path)()
    executor.submit(launch_of())
    wait_for(executor, Phase.RUNNING)
    own_slurm.stop("munged")
    for call in (
        lambda: executor.submit(launch_of("s2x1x0")),
        lambda: executor.observe([ID]),
        lambda: executor.cancel(ID),
        lambda: executor.resize(ID, 3),
        lambda: executor.orphans([]),
    ):
        with pytest.raises(OSError):
            call()
    own_slurm.start("munged")
    until(lambda: bool(own_slurm.ask("squeue")))
    wait_for(executor, Phase.RUNNING)
    executor.submit(launch_of("s2x1x0"))
    assert jobs(own_slurm).count("wt-s2x1x0") == 2


def test_a_job_cancelled_outside_the_platform_has_ended_with_that_reason(
    slurm: Slurm, open_executor: OpenExecutor
) -> None:
    executor = open_executor()
    executor.submit(launch_of())
    wait_for(executor, Phase.RUNNING)
    slurm.ask("scancel", "--name=wt-" + ID)
    assert "cancelled outside the platform" in str(wait_for(executor, Phase.ENDED).reason)


def test_a_launch_whose_node_failed_has_ended_with_that_reason(own_slurm: Slurm, tmp_path: Path) -> None:
    executor = executor_opener(own_slurm, tmp_path)()
    executor.submit(launch_of())
    wait_for(executor, Phase.RUNNING)
    own_slurm.stop("slurmd", node=own_slurm.host)
    own_slurm.ask("scontrol", "update", f"NodeName={own_slurm.host}", "State=DOWN", "Reason=test")
    assert wait_for(executor, Phase.ENDED).reason == "its node failed"


def test_a_launch_pending_for_a_drained_node_has_a_note_and_starts_afterwards(
    slurm: Slurm, open_executor: OpenExecutor
) -> None:
    executor = open_executor()
    slurm.ask("scontrol", "update", f"NodeName={slurm.host}", "State=DRAIN", "Reason=test")
    executor.submit(launch_of())
    until(
        lambda: (
            (status := status_of(executor)) is not None and "drained" in " ".join(note.message for note in status.notes)
        )
    )
    assert wait_for(executor, Phase.SUSPENDED).hopeless is False
    slurm.ask("scontrol", "update", f"NodeName={slurm.host}", "State=RESUME")
    assert wait_for(executor, Phase.RUNNING).notes == ()


def test_a_launch_that_can_never_start_has_ended_as_hopeless(open_executor: OpenExecutor) -> None:
    executor = open_executor(partition="short", minutes=5)
    executor.submit(launch_of())
    ended = wait_for(executor, Phase.ENDED)
    assert ended.hopeless and "its partition" in str(ended.reason)


def test_slurms_rejections_are_quoted_and_leave_no_folder(open_executor: OpenExecutor) -> None:
    executor = open_executor()
    with pytest.raises(PlatformError, match="Invalid partition name"):
        executor.submit(launch_of(placement=Placement(queue="none")))
    with pytest.raises(PlatformError, match="gres"):
        executor.submit(launch_of(placement=Placement(resources={"nvidia.com/gpu": "1"})))
    with pytest.raises(Unsupported):
        executor.submit(launch_of(gang=Gang(size=2)))
    assert executor.orphans([]) == []


def test_a_submission_that_was_killed_before_it_was_recorded_is_not_repeated(
    slurm: Slurm, open_executor: OpenExecutor, tmp_path: Path
) -> None:
    executor = open_executor()
    executor.submit(launch_of())
    (tmp_path / "home/slurm/slurm" / ID / "submitted").unlink()
    executor.submit(launch_of())
    assert jobs(slurm).count("wt-" + ID) == 2


def test_of_two_overlapping_submissions_only_the_first_runs(
    slurm: Slurm, open_executor: OpenExecutor, tmp_path: Path
) -> None:
    executor = open_executor(f"echo $SLURM_ARRAY_JOB_ID >> {tmp_path}/running; {WAIT_SCRIPT}")
    launch = launch_of("s7x1x0", workers=1)
    executor.submit(launch)
    # as after a response that arrived after the time-out
    executor._sbatch(launch.id, executor._folders.arguments(launch.id), range(1))
    until(lambda: "wt-s7x1x0" in jobs(slurm, "COMPLETED"))
    assert len((tmp_path / "running").read_text().split()) == 1
    assert wait_for(executor, Phase.RUNNING, launch.id).exit is None
    executor.cancel(launch.id)
    until(lambda: not jobs(slurm, "RUNNING,PENDING,COMPLETING"))


def test_cancelling_leaves_no_job_no_process_and_no_file(
    slurm: Slurm, open_executor: OpenExecutor, tmp_path: Path
) -> None:
    executor = open_executor(f"echo $$ >> {tmp_path}/pids; {WAIT_SCRIPT}")
    executor.submit(launch_of())
    until(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2)
    executor.cancel(ID)
    assert executor.orphans([]) == []
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (tmp_path / "pids").read_text().split()))
    assert not (tmp_path / "home/slurm/slurm" / ID).exists()


def test_a_running_launch_is_resized(slurm: Slurm, open_executor: OpenExecutor) -> None:
    executor = open_executor()
    executor.submit(launch_of(workers=1))
    wait_for(executor, Phase.RUNNING)
    executor.resize(ID, 2)
    executor.resize(ID, 2)
    until(lambda: len(jobs(slurm, "RUNNING")) == 2)
    assert len(jobs(slurm)) == 2
    executor.resize(ID, 1)
    until(lambda: len(jobs(slurm, "RUNNING,COMPLETING")) == 1)
    assert wait_for(executor, Phase.RUNNING).notes == ()
    executor.resize(ID, 2)  # adds a runner with a new array task id
    until(lambda: len(jobs(slurm, "RUNNING")) == 2)
    executor.resize("another", 2)


def test_a_runner_removed_by_a_resize_is_not_the_reason_of_the_end(
    slurm: Slurm, open_executor: OpenExecutor, tmp_path: Path
) -> None:
    executor = open_executor(f"until test -e {tmp_path}/go; do sleep 0.1; done")
    executor.submit(launch_of())
    wait_for(executor, Phase.RUNNING)
    executor.resize(ID, 1)
    until(lambda: len(jobs(slurm, "RUNNING,COMPLETING")) == 1)
    (tmp_path / "go").touch()
    assert wait_for(executor, Phase.ENDED) == LaunchStatus(id=ID, phase=Phase.ENDED, exit=0)


def test_orphans_of_another_platform_are_not_listed(slurm: Slurm, open_executor: OpenExecutor, tmp_path: Path) -> None:
    executor, other_executor = open_executor(), open_executor(name="another")
    executor.submit(launch_of(workers=1))
    other_executor.submit(launch_of("t1x1x0", workers=1))
    assert executor.orphans([]) == [ID] and executor.orphans([ID]) == []
    executor.cancel("t1x1x0")
    assert wait_for(other_executor, Phase.RUNNING, "t1x1x0")
    (tmp_path / "home/slurm/slurm/s9x1x0").mkdir()  # the remains of a submission that was killed
    assert executor.orphans([ID]) == ["s9x1x0"]
    executor.cancel("s9x1x0")
    assert executor.orphans([ID]) == []


def test_the_token_and_the_platforms_environment_are_not_visible_to_other_users(
    slurm: Slurm, open_executor: OpenExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_PASSWORD", "secret-token")
    executor = open_executor(f"env > {tmp_path}/environment; echo $$ > {tmp_path}/pid; {WAIT_SCRIPT}")
    executor.submit(launch_of(workers=1, project='a"b; c'))
    until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
    visible = slurm.ask("scontrol", "show", "job", "--details")
    assert 'project=a"b; c;simulation=s1;attempt=1' in visible
    visible += slurm.ask("scontrol", "write", "batch_script", visible.partition("JobId=")[2].split()[0], "-")
    visible += slurm.ask("squeue", "--json") + (tmp_path / "environment").read_text()
    visible += Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/cmdline").read_text()
    assert "workers.standalone_runner" in visible and "secret-token" not in visible
    token = tmp_path / "home/slurm/slurm" / ID / "token"
    assert token.read_text() == "secret-token" and token.stat().st_mode & 0o777 == 0o600
    assert token.parent.stat().st_mode & 0o777 == 0o700
    assert "secret-token" not in (token.parent / "launch.json").read_text()


def test_the_last_line_of_a_failed_runner_is_quoted(open_executor: OpenExecutor) -> None:
    executor = open_executor("echo no response; exit 75")
    executor.submit(launch_of())
    ended = wait_for(executor, Phase.ENDED)
    assert ended.exit == 75 and ended.reason == "it exited with code 75 (no response)"


def test_a_launch_that_slurm_has_forgotten_has_ended_and_is_not_submitted_again(
    own_slurm: Slurm, tmp_path: Path
) -> None:
    executor = executor_opener(own_slurm, tmp_path)()
    executor.submit(launch_of())
    wait_for(executor, Phase.RUNNING)
    own_slurm.stop("slurmctld", sign=signal.SIGTERM)
    for process in own_slurm.processes():
        if b"slurmstepd" in Path(f"/proc/{process}/cmdline").read_bytes():
            os.kill(process, signal.SIGKILL)
    own_slurm.start("slurmctld", "-c")
    until(lambda: bool(own_slurm.ask("sinfo")))
    assert "no longer knows" in str(wait_for(executor, Phase.ENDED).reason)
    executor.submit(launch_of())
    assert jobs(own_slurm, "all") == []


def test_runners_complete_a_simulation_while_it_is_resized(
    runner_api: RunnerApi, runner_executor: SlurmExecutor
) -> None:
    runner_executor.submit(launch_of(LAUNCH, simulation_id=SIMULATION, token=TOKEN, url=runner_api.url, workers=1))
    until(lambda: "report" in runner_api.requests)
    runner_executor.resize(LAUNCH, 2)
    until(lambda: finished_tasks(runner_api) == TASKS)
    assert len(runner_api.results()) == TASKS
    runner_api.settle()
    assert wait_for(runner_executor, Phase.ENDED, LAUNCH) == LaunchStatus(id=LAUNCH, phase=Phase.ENDED, exit=0)
    runner_executor.cancel(LAUNCH)


def test_no_result_is_lost_when_a_runner_is_killed(
    slurm: Slurm, runner_api: RunnerApi, runner_executor: SlurmExecutor, tmp_path: Path
) -> None:
    runner_executor.submit(launch_of(LAUNCH, simulation_id=SIMULATION, token=TOKEN, url=runner_api.url))
    until(lambda: len(jobs(slurm, "RUNNING")) == 2 and "report" in runner_api.requests)
    slurm.ask("scancel", "--signal=KILL", "--full", slurm.ask("squeue", "--noheader", "--format=%A").split()[0])
    until(lambda: runner_api.leases.expire() == [] and finished_tasks(runner_api) == TASKS)
    assert [line["task"] for line in runner_api.results()] == list(range(TASKS))
    runner_api.settle()
    assert wait_for(runner_executor, Phase.ENDED, LAUNCH).reason
    runner_executor.cancel(LAUNCH)


def test_a_job_requeued_by_its_controller_runs_again_unless_it_has_ended(
    open_executor: OpenExecutor, tmp_path: Path
) -> None:
    """Runs the job script without Slurm, which waits two minutes before it requeues a job."""
    script = open_executor(f"echo running >> {tmp_path}/runs; test -e {tmp_path}/go || kill -9 $PPID; exit 3").script()
    (tmp_path / "launch.json").write_text("{}")

    def run(job: str) -> tuple[int, int]:
        environment = {"PATH": os.environ["PATH"], "SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": "4"}
        completed = subprocess.run(
            ["sh"], input=script, text=True, cwd=tmp_path, env=environment, timeout=60, check=False
        )
        return completed.returncode, (tmp_path / "runs").read_text().count("running")

    assert run("7") == (-signal.SIGKILL, 1)
    assert run("8") == (0, 1)  # another submission
    (tmp_path / "go").touch()
    assert run("7") == (3, 2)
    assert run("7") == (3, 2)  # the job had ended
