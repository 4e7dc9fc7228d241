"""Slurm jobs: sbatch arguments, parsing of squeue, launch status; without Slurm."""

from dataclasses import fields
from typing import Any

import pytest

from core.domain.scheduling.launches import Launch, Phase, Placement
from runtimes.harness.runner.runner import STOPPED
from workers.executors import slurm
from workers.executors.slurm.jobs import (
    Job,
    SlurmOptions,
    TaskRecords,
    arguments,
    array_of,
    exit_code,
    launch_status,
    read_jobs,
)
from workers.executors.slurm.status_tables import ENDINGS, REASONS, STATES, TRANSIENT_ERRORS


def launch_of(**changes: Any) -> Launch:
    fields: dict[str, Any] = {"id": "s1x1x0", "simulation_id": "s1", "attempt": 1, "url": "http://127.0.0.1:1"}
    fields |= {"workers": 2, "runtime": "python", "format": "python", "dataset": "noop", "version": "1", "token": "t"}
    return Launch(**(fields | {"model_digest": "d", "model_key": "m"} | changes))


def job(task: int | None, state: str, exit: int = 0, reason: str = "None") -> Job:
    return Job(
        id="7",
        task=task,
        name="wt-s1x1x0",
        state=state,
        exit=exit,
        reason=reason,
        folder="/launches/s1x1x0",
    )


def sbatch_options(launch: Launch, **options: Any) -> dict[str, str]:
    parts = [argument.removeprefix("--").partition("=") for argument in arguments(launch, SlurmOptions(**options))]
    return {name: value for name, _, value in parts}


@pytest.mark.parametrize(
    ("tasks", "text"), [([0], "0"), ([0, 1, 2], "0-2"), ([2, 0, 1, 5], "0-2,5"), ([3, 5, 6], "3,5-6")]
)
def test_an_array_is_written_in_sbatchs_syntax(tasks: list[int], text: str) -> None:
    assert array_of(tasks) == text


def test_a_task_requests_the_resources_of_a_worker_and_its_runner() -> None:
    options = sbatch_options(launch_of(placement=Placement(cpu=1.5, memory=4 << 30)))
    assert options["job-name"] == "wt-s1x1x0" and options["cpus-per-task"] == "2" and options["mem"] == "4352M"
    assert options["comment"] == "project=default;simulation=s1;attempt=1"
    assert {"no-requeue", "ntasks", "output", "open-mode"} <= set(options)
    assert not {"time", "partition", "account", "qos", "wckey", "gres", "reservation", "constraint"} & set(options)


def test_the_time_limit_is_the_lesser_of_the_timeout_of_the_simulation_and_the_minutes_of_the_executor() -> None:
    assert sbatch_options(launch_of(timeout=600.0))["time"] == "15"
    assert sbatch_options(launch_of(timeout=600.0), minutes=10)["time"] == "10"
    assert sbatch_options(launch_of(), minutes=10)["time"] == "10"


def test_a_placement_overrides_the_executors_options() -> None:
    placement = Placement(queue="gpu", priority="high", resources={"nvidia.com/gpu": "2", "gpu:a100": "1"})
    launch = launch_of(placement=placement, project="p")
    options = sbatch_options(launch, partition="cpu", qos="low", account="acc-{project}")
    assert (options["partition"], options["qos"], options["account"]) == ("gpu", "high", "acc-p")
    assert options["gres"] == "gpu:2,gpu:a100:1"


def test_a_placement_reaches_sbatch_only_through_the_options_that_are_held_to_the_allow_list() -> None:
    """With every other option of a placement set, the arguments of sbatch are those of an empty placement."""
    ignored = Placement(
        networks=("n",),
        claims={"c": "d"},
        annotations={"a": "b"},
        node_selector={"p": "q"},
        exclusive="zone",
    )
    assert arguments(launch_of(placement=ignored), SlurmOptions()) == arguments(launch_of(), SlurmOptions())
    named = {
        field.name for field in fields(Placement) if getattr(ignored, field.name) != getattr(Placement(), field.name)
    }
    assert named == slurm.KIND.ignored & {field.name for field in fields(Placement)}


def test_a_projects_name_cannot_add_an_option() -> None:
    sbatch_arguments = arguments(launch_of(project="p\n#SBATCH --uid=0 --x"), SlurmOptions())
    assert [argument for argument in sbatch_arguments if "uid" in argument] == [
        "--comment=project=p\n#SBATCH --uid=0 --x;simulation=s1;attempt=1"
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"partitoin": "x"}, "no option partitoin; known: conf, folder"), ({"minutes": "10"}, "minutes")],
)
def test_an_unknown_option_and_a_value_of_the_wrong_type_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        slurm.KIND.parse(options)


def test_squeues_output_is_parsed() -> None:
    text = (
        "9|1|wt-a|PENDING|0|Nodes required for job are DOWN, DRAINED or reserved|/l/a|\n"
        "9|N/A|wt-a|CANCELLED|0|None|/l/a|\n"
        "1|0|wt-b|FAILED|1792|NonZeroExitCode|/l/b|\n"
    )
    pending, cancelled, failed = read_jobs(text)
    assert (pending.task, pending.phase, pending.handle) == (1, Phase.SUSPENDED, "9_1")
    assert (cancelled.task, cancelled.phase, cancelled.handle) == (None, Phase.ENDED, "9")
    assert (failed.exit, failed.folder) == (7, "/l/b")


@pytest.mark.parametrize(("text", "code"), [("0", 0), ("1792", 7), ("15", 143), ("7:0", 7), ("0:9", 137), ("N/A", 0)])
def test_exit_codes_are_parsed_in_the_syntax_of_each_release(text: str, code: int) -> None:
    assert exit_code(text) == code


@pytest.mark.parametrize(
    ("states", "phase"),
    [
        (["PENDING", "PENDING"], Phase.SUSPENDED),
        (["PENDING", "CONFIGURING"], Phase.STARTING),
        (["PENDING", "RUNNING"], Phase.RUNNING),
        (["COMPLETED", "RUNNING"], Phase.RUNNING),
        (["FAILED", "COMPLETING"], Phase.RUNNING),
        (["COMPLETED", "COMPLETED"], Phase.ENDED),
        (["A_STATE_OF_TOMORROW"], Phase.ENDED),
    ],
)
def test_a_launch_has_the_most_advanced_phase_of_its_unfinished_tasks(states: list[str], phase: Phase) -> None:
    assert (
        launch_status("s1x1x0", [job(task, state) for task, state in enumerate(states)], TaskRecords()).phase is phase
    )


@pytest.mark.parametrize("state", sorted(ENDINGS))
def test_every_failed_end_state_has_a_reason(state: str) -> None:
    status = launch_status("s1x1x0", [job(0, state), job(1, "COMPLETED")], TaskRecords())
    assert status.phase is Phase.ENDED and status.reason == ENDINGS[state]


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_pending_reason_has_a_note_and_only_hopeless_ones_end_the_launch(reason: str) -> None:
    status = launch_status("s1x1x0", [job(0, "PENDING", reason=reason)], TaskRecords())
    assert [note.key for note in status.notes] == [reason] and REASONS[reason].message in status.notes[0].message
    assert status.hopeless is REASONS[reason].never
    assert status.phase is (Phase.ENDED if status.hopeless else Phase.SUSPENDED)


def test_the_longest_matching_reason_applies() -> None:
    notes = launch_status("s1x1x0", [job(0, "PENDING", reason="QOSMaxJobsPerUserLimit")], TaskRecords()).notes
    assert REASONS["QOSMax"].message in notes[0].message
    assert launch_status("s1x1x0", [job(0, "PENDING", reason="QOSMaxCpuPerJobLimit")], TaskRecords()).hopeless
    assert launch_status(
        "s1x1x0", [job(0, "PENDING", reason="ReqNodeNotAvail, UnavailableNodes:n1")], TaskRecords()
    ).notes


def test_an_unknown_pending_reason_is_quoted() -> None:
    (note,) = launch_status("s1x1x0", [job(0, "PENDING", reason="FrontEndDown")], TaskRecords()).notes
    assert "FrontEndDown" in note.message


def test_a_hopeless_pending_task_does_not_end_a_launch_with_running_tasks() -> None:
    tasks = [job(0, "RUNNING"), job(1, "PENDING", reason="PartitionTimeLimit")]
    assert launch_status("s1x1x0", tasks, TaskRecords()).phase is Phase.RUNNING


def test_a_lost_runner_has_a_note_while_others_continue() -> None:
    status = launch_status("s1x1x0", [job(0, "RUNNING"), job(1, "OUT_OF_MEMORY")], TaskRecords())
    assert status.phase is Phase.RUNNING and "memory" in status.notes[0].message
    assert status.notes == launch_status("s1x1x0", [job(0, "RUNNING"), job(1, "OUT_OF_MEMORY")], TaskRecords()).notes


def test_recorded_exit_codes_are_used_after_slurm_has_deleted_the_jobs() -> None:
    assert launch_status("s1x1x0", [], TaskRecords(exits={0: 0, 1: 0})).exit == 0
    assert launch_status("s1x1x0", [], TaskRecords(exits={0: 0, 1: 75})).exit == 75
    status = launch_status("s1x1x0", [], TaskRecords(started=frozenset({0})))
    assert status.phase is Phase.ENDED and "no longer knows" in str(status.reason)


def test_a_task_with_a_recorded_exit_code_has_ended_while_slurm_cleans_up() -> None:
    assert launch_status("s1x1x0", [job(0, "COMPLETING")], TaskRecords(exits={0: 0})).phase is Phase.ENDED


@pytest.mark.parametrize("state", sorted(ENDINGS))
def test_a_runner_that_slurm_has_asked_to_stop_has_ended_with_slurms_reason(state: str) -> None:
    stopped = TaskRecords(exits={0: STOPPED})
    assert launch_status("s1x1x0", [job(0, "COMPLETING")], stopped).phase is Phase.RUNNING, "the reason is to come"
    assert launch_status("s1x1x0", [job(0, state)], stopped).reason == ENDINGS[state]
    assert launch_status("s1x1x0", [], stopped).exit == STOPPED
    assert launch_status("s1x1x0", [job(0, state)], TaskRecords(exits={0: 75})).exit == 75


def test_dismissed_runners_do_not_count() -> None:
    tasks = [job(0, "COMPLETED"), job(1, "CANCELLED", 15)]
    assert launch_status("s1x1x0", tasks, TaskRecords(dismissed=frozenset({1}))).reason is None
    assert launch_status("s1x1x0", tasks, TaskRecords()).reason == ENDINGS["CANCELLED"]


def test_the_tables_are_consistent() -> None:
    assert not set(STATES) & set(ENDINGS)
    assert len(set(TRANSIENT_ERRORS)) == len(TRANSIENT_ERRORS)
    assert all(reason.message and not reason.message.endswith(".") for reason in REASONS.values())
