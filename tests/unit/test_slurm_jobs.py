"""What Slurm's answers make of a launch, and what is asked of it, without a Slurm."""

from typing import Any

import pytest

from core.domain.launches import Launch, Phase, Placement
from workers.executors import slurm
from workers.executors.slurm.jobs import (
    Job,
    SlurmOptions,
    TaskRecords,
    arguments,
    array_of,
    bytes_of,
    exit_code,
    launch_status,
    read_free_resources,
    read_jobs,
)
from workers.executors.slurm.status_tables import ENDINGS, REASONS, STATES, TRANSIENT_ERRORS


def launch_of(**changes: Any) -> Launch:
    said: dict[str, Any] = {"id": "s1x1x0", "simulation_id": "s1", "attempt": 1, "url": "http://127.0.0.1:1"}
    said |= {"workers": 2, "runtime": "python", "format": "python", "dataset": "noop", "version": "1", "token": "t"}
    return Launch(**(said | {"model_digest": "d", "model_key": "m"} | changes))


def job(task: int | None, state: str, exit: int = 0, reason: str = "None") -> Job:
    return Job("7", task, "wt-s1x1x0", state, exit, 1, 1 << 30, reason, "/launches/s1x1x0")


def asked(launch: Launch, **options: Any) -> dict[str, str]:
    given = [one.removeprefix("--").partition("=") for one in arguments(launch, SlurmOptions(**options))]
    return {name: value for name, _, value in given}


@pytest.mark.parametrize(
    ("tasks", "written"), [([0], "0"), ([0, 1, 2], "0-2"), ([2, 0, 1, 5], "0-2,5"), ([3, 5, 6], "3,5-6")]
)
def test_an_array_is_written_as_slurm_reads_it(tasks: list[int], written: str) -> None:
    assert array_of(tasks) == written


def test_a_launch_asks_for_one_pair_and_its_runner_a_task() -> None:
    said = asked(launch_of(placement=Placement(cpu=1.5, memory=4 << 30)))
    assert said["job-name"] == "wt-s1x1x0" and said["cpus-per-task"] == "2" and said["mem"] == "4352M"
    assert said["comment"] == "project=default;simulation=s1;attempt=1"
    assert {"no-requeue", "ntasks", "output", "open-mode"} <= set(said)
    assert not {"time", "partition", "account", "qos", "wckey", "gres", "reservation", "constraint"} & set(said)


def test_a_launch_gets_the_time_of_its_simulation_but_no_more_than_the_site_gives() -> None:
    assert asked(launch_of(timeout=600.0))["time"] == "15"
    assert asked(launch_of(timeout=600.0), minutes=10)["time"] == "10"
    assert asked(launch_of(), minutes=10)["time"] == "10"


def test_a_placement_is_heard_before_the_sites_options() -> None:
    placement = Placement(queue="gpu", priority="high", resources={"nvidia.com/gpu": "2", "gpu:a100": "1"})
    said = asked(launch_of(placement=placement, project="p"), partition="cpu", qos="low", account="acc-{project}")
    assert (said["partition"], said["qos"], said["account"]) == ("gpu", "high", "acc-p")
    assert said["gres"] == "gpu:2,gpu:a100:1"


def test_no_project_can_add_an_option() -> None:
    given = arguments(launch_of(project="p\n#SBATCH --uid=0 --x"), SlurmOptions())
    assert [one for one in given if "uid" in one] == [
        "--comment=project=p\n#SBATCH --uid=0 --x;simulation=s1;attempt=1"
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [({"partitoin": "x"}, "no option partitoin; known: conf, folder"), ({"minutes": "10"}, "minutes")],
)
def test_an_unknown_option_and_a_value_of_the_wrong_type_are_errors(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        slurm.KIND.parse(options)


def test_squeues_lines_are_read() -> None:
    text = (
        "9|1|wt-a|PENDING|0|1|2304M|Nodes required for job are DOWN, DRAINED or reserved|/l/a|\n"
        "9|N/A|wt-a|CANCELLED|0|2|1G|None|/l/a|\n"
        "1|0|wt-b|FAILED|1792|1|0|NonZeroExitCode|/l/b|\n"
    )
    pending, cancelled, failed = read_jobs(text)
    assert (pending.task, pending.phase, pending.memory, pending.handle) == (1, Phase.SUSPENDED, 2304 << 20, "9_1")
    assert (cancelled.task, cancelled.phase, cancelled.handle) == (None, Phase.ENDED, "9")
    assert (failed.exit, failed.folder) == (7, "/l/b")


@pytest.mark.parametrize(("said", "code"), [("0", 0), ("1792", 7), ("15", 143), ("7:0", 7), ("0:9", 137), ("N/A", 0)])
def test_exit_codes_are_read_in_each_releases_way(said: str, code: int) -> None:
    assert exit_code(said) == code


@pytest.mark.parametrize(("said", "number"), [("2304M", 2304 << 20), ("2G", 2 << 30), ("512", 512 << 20), ("", 0)])
def test_amounts_of_memory_are_read(said: str, number: int) -> None:
    assert bytes_of(said) == number


def test_room_is_that_of_nodes_that_take_jobs_each_counted_once() -> None:
    text = (
        "n1|1/3/0/4|8192|2048|mixed|\n"
        "n1|1/3/0/4|8192|2048|mixed|\n"
        "n2|0/4/0/4|8192|0|idle*|\n"
        "n3|0/0/4/4|8192|0|drained|\n"
        "n4|0/2/0/2|4096|0|idle|\n"
    )
    assert read_free_resources(text) == (5, (6144 + 4096) << 20)


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
def test_the_most_lively_task_decides(states: list[str], phase: Phase) -> None:
    assert (
        launch_status("s1x1x0", [job(task, state) for task, state in enumerate(states)], TaskRecords()).phase is phase
    )


@pytest.mark.parametrize("state", sorted(ENDINGS))
def test_every_bad_ending_has_its_words(state: str) -> None:
    seen = launch_status("s1x1x0", [job(0, state), job(1, "COMPLETED")], TaskRecords())
    assert seen.phase is Phase.ENDED and seen.reason == ENDINGS[state]


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_to_wait_is_told_and_only_hopeless_ones_end_it(reason: str) -> None:
    seen = launch_status("s1x1x0", [job(0, "PENDING", reason=reason)], TaskRecords())
    assert [note.key for note in seen.notes] == [reason] and REASONS[reason].words in seen.notes[0].words
    assert seen.hopeless is REASONS[reason].never
    assert seen.phase is (Phase.ENDED if seen.hopeless else Phase.SUSPENDED)


def test_the_longest_reason_that_fits_is_told() -> None:
    said = launch_status("s1x1x0", [job(0, "PENDING", reason="QOSMaxJobsPerUserLimit")], TaskRecords()).notes
    assert REASONS["QOSMax"].words in said[0].words
    assert launch_status("s1x1x0", [job(0, "PENDING", reason="QOSMaxCpuPerJobLimit")], TaskRecords()).hopeless
    assert launch_status(
        "s1x1x0", [job(0, "PENDING", reason="ReqNodeNotAvail, UnavailableNodes:n1")], TaskRecords()
    ).notes


def test_a_reason_that_nobody_has_translated_is_told_in_slurms_word() -> None:
    (note,) = launch_status("s1x1x0", [job(0, "PENDING", reason="FrontEndDown")], TaskRecords()).notes
    assert "FrontEndDown" in note.words


def test_a_reason_that_holds_one_task_while_others_run_ends_nothing() -> None:
    tasks = [job(0, "RUNNING"), job(1, "PENDING", reason="PartitionTimeLimit")]
    assert launch_status("s1x1x0", tasks, TaskRecords()).phase is Phase.RUNNING


def test_a_runner_that_is_lost_is_told_of_while_others_go_on() -> None:
    seen = launch_status("s1x1x0", [job(0, "RUNNING"), job(1, "OUT_OF_MEMORY")], TaskRecords())
    assert seen.phase is Phase.RUNNING and "memory" in seen.notes[0].words
    assert seen.notes == launch_status("s1x1x0", [job(0, "RUNNING"), job(1, "OUT_OF_MEMORY")], TaskRecords()).notes


def test_what_a_task_left_behind_outlives_what_slurm_remembers() -> None:
    assert launch_status("s1x1x0", [], TaskRecords(exits={0: 0, 1: 0})).exit == 0
    assert launch_status("s1x1x0", [], TaskRecords(exits={0: 0, 1: 75})).exit == 75
    forgotten = launch_status("s1x1x0", [], TaskRecords(began=frozenset({0})))
    assert forgotten.phase is Phase.ENDED and "no longer knows" in str(forgotten.reason)


def test_a_task_that_left_its_exit_code_is_over_whatever_slurm_still_cleans_up() -> None:
    assert launch_status("s1x1x0", [job(0, "COMPLETING")], TaskRecords(exits={0: 0})).phase is Phase.ENDED


def test_runners_that_were_dismissed_do_not_count() -> None:
    tasks = [job(0, "COMPLETED"), job(1, "CANCELLED", 15)]
    assert launch_status("s1x1x0", tasks, TaskRecords(dismissed=frozenset({1}))).reason is None
    assert launch_status("s1x1x0", tasks, TaskRecords()).reason == ENDINGS["CANCELLED"]


def test_the_tables_contradict_neither_each_other_nor_themselves() -> None:
    assert not set(STATES) & set(ENDINGS)
    assert len(set(TRANSIENT_ERRORS)) == len(TRANSIENT_ERRORS)
    assert all(wait.words and not wait.words.endswith(".") for wait in REASONS.values())
