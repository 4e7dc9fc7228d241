"""Chaos: any process is killed at any time; every task has one result, equal to the result of a run without kills."""

import random
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
import redis

from tests.system.conftest import StartPlatform
from tests.system.platform_process import MODELS, ROLES, PlatformProcess, has_one_result_per_task, lives, untimed
from tests.waiting import until

#: Short leases, so that the tasks of a killed agent are leased again soon.
SHORT_LEASES = {"lease_ttl": 3}
#: Tasks of the longer load. They sleep: several platforms share two cores while these tests run.
TASKS = 6000
LOADS: Mapping[str, Mapping[str, Any]] = {
    "noop": {
        "model": MODELS / "echo.py",
        "dataset": "noop",
        "scenarios": {"range": [0, TASKS]},
        "params": {"sleep_ms": 1},
    },
    "car_street": {
        "model": "idm",
        "runtime": "python",
        "dataset": "car_street",
        "scenarios": {"sample": 30, "seed": 4},
    },
}
#: Result lines without their timing, and the digest of them all.
ExpectedResults = tuple[list[bytes], str]
#: Seconds a disturbed run may take; after each kill of the agent, a lease expires and workers start again.
TIMEOUT = 150.0


@pytest.fixture(scope="module")
def expected_results(platform: PlatformProcess) -> Iterator[Callable[[str], ExpectedResults]]:
    """Function that runs a load once without kills, for all tests; it returns untimed results and their digest."""
    results: dict[str, ExpectedResults] = {}

    def run_load(load: str) -> tuple[list[bytes], str]:
        if load not in results:
            ended = platform.run(**LOADS[load], wait_timeout=TIMEOUT)
            assert ended["state"] == "succeeded"
            results[load] = (
                [untimed(line) for line in platform.lines(ended["id"])],
                results_digest(platform, ended["id"]),
            )
        return results[load]

    yield run_load


def results_digest(platform: PlatformProcess, id: str) -> str:
    """Return the digest of all results."""
    return str(platform.summary(id)["results_digest"])


def differing_results(
    platform: PlatformProcess, id: str, expected_results: ExpectedResults
) -> list[tuple[bytes, bytes]]:
    """Return the pairs of results, without timing, that differ from a run without kills."""
    lines = [untimed(line) for line in platform.lines(id)]
    pairs = [pair for pair in zip(lines, expected_results[0], strict=True) if pair[0] != pair[1]]
    assert bool(pairs) == (results_digest(platform, id) != expected_results[1])
    return pairs


def flush_redis(platform: PlatformProcess) -> bool:
    """Empty the notifier's Redis; return False while it is down."""
    try:
        platform.flush_redis()
    except (redis.ConnectionError, FileNotFoundError):
        return False
    return True


def wait_for_tasks(platform: PlatformProcess, id: str, goal: int) -> None:
    """Wait until a number of tasks are done, so that a kill hits the same state on machines of any speed."""
    until(lambda: platform.get(id)["tasks"]["done"] >= goal, TIMEOUT, f"{goal} tasks are not done", every=0.01)


def is_being_finalized(platform: PlatformProcess, id: str) -> bool:
    """Return whether a job finalizes a running simulation: its claim is a column of the row."""
    with closing(sqlite3.connect(f"file:{platform.home}/windtunnel.db?mode=ro", uri=True)) as connection:
        row = connection.execute("SELECT claim FROM simulations WHERE id = ? AND state = 'running'", (id,)).fetchone()
    return row is not None and row[0] is not None


def has_results(platform: PlatformProcess, id: str) -> bool:
    """Return whether a simulation has results."""
    return bool(platform.get(id)["tasks"]["done"] > 0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killing_every_role_under_load_does_not_change_the_results(
    start_platform: StartPlatform, expected_results: Callable[[str], ExpectedResults], seed: int
) -> None:
    rng = random.Random(seed)
    platform = start_platform(**SHORT_LEASES)
    ids = {load: platform.submit(**LOADS[load], workers=1)["id"] for load in LOADS}
    for id in ids.values():
        until(lambda id=id: has_results(platform, id), message="no task is done")
    victims = [*ROLES, "flush"]
    rng.shuffle(victims)
    # Victims with the same goal are killed one right after the other; all victims before the load is done.
    goals = sorted(rng.choices(range(TASKS // 40, TASKS * 3 // 4, TASKS // 13), k=len(victims)))
    for victim, goal in zip(victims, goals, strict=True):
        wait_for_tasks(platform, ids["noop"], goal)
        if victim == "flush":
            until(lambda: flush_redis(platform), message="valkey does not restart")
        else:
            platform.kill(victim, rng)
    for load, id in ids.items():
        ended = platform.wait_for_end(id, TIMEOUT)
        assert ended["state"] == "succeeded", ended["reason"]
        assert has_one_result_per_task(platform.results(id), ended["tasks"]["total"])
        assert differing_results(platform, id, expected_results(load)) == []


@pytest.mark.parametrize("load", LOADS)
def test_killed_model_servers_do_not_change_the_results(
    start_platform: StartPlatform, expected_results: Callable[[str], ExpectedResults], load: str
) -> None:
    rng = random.Random(5)
    platform = start_platform(**SHORT_LEASES)
    id = platform.submit(**LOADS[load])["id"]
    total = platform.get(id)["tasks"]["total"]
    goals = sorted(rng.sample(range(1, total * 3 // 4), 6))
    for goal in goals:
        wait_for_tasks(platform, id, goal)
        platform.kill("model_server", rng)
    ended = platform.wait_for_end(id, TIMEOUT)
    assert ended["state"] == "succeeded", ended["reason"]
    results = platform.results(id)
    assert has_one_result_per_task(results, ended["tasks"]["total"])
    assert {result["status"] for result in results} == {"ok"}
    assert differing_results(platform, id, expected_results(load)) == []


def test_after_a_kill_of_every_process_the_next_start_continues(
    start_platform: StartPlatform, expected_results: Callable[[str], ExpectedResults]
) -> None:
    platform = start_platform(**SHORT_LEASES)
    ids = {load: platform.submit(**LOADS[load])["id"] for load in LOADS}
    wait_for_tasks(platform, ids["noop"], random.Random(7).randrange(1, TASKS // 2))
    platform.crash()
    platform.start()
    for load, id in ids.items():
        ended = platform.wait_for_end(id, TIMEOUT)
        assert ended["state"] == "succeeded", ended["reason"]
        assert has_one_result_per_task(platform.results(id), ended["tasks"]["total"])
        assert differing_results(platform, id, expected_results(load)) == []


def test_ctrl_c_leaves_no_process_and_a_second_start_continues(
    start_platform: StartPlatform, expected_results: Callable[[str], ExpectedResults]
) -> None:
    platform = start_platform(**SHORT_LEASES)
    id = platform.submit(**LOADS["noop"])["id"]
    until(lambda: has_results(platform, id), message="no task is done")
    processes = platform.processes()
    assert len(processes) > 8
    assert platform.interrupt() == 0
    assert [pid for pid, started_at in processes.items() if lives(pid, started_at)] == []
    platform.start()
    ended = platform.wait_for_end(id, TIMEOUT)
    assert ended["state"] == "succeeded", ended["reason"]
    assert differing_results(platform, id, expected_results("noop")) == []


def test_a_second_supervisor_in_the_same_home_is_refused(start_platform: StartPlatform) -> None:
    platform = start_platform()
    second = platform.supervise()
    try:
        assert second.wait(20.0) != 0
    except subprocess.TimeoutExpired:
        second.send_signal(signal.SIGINT)
        second.wait(20.0)
        raise
    assert "running in this home already" in platform.output()
    assert platform.ready()  # the first supervisor is not affected


def test_roles_that_die_at_the_same_instant_are_all_restarted(start_platform: StartPlatform) -> None:
    platform = start_platform()
    roles = ("api", "runner-api", "dispatch", "jobs", "agent")
    for _ in range(3):
        before = {pid for role in roles for pid in platform.pids(role)}
        for pid in before:
            platform.kill_process(pid)
        until(lambda: all(platform.pids(role) for role in roles), message="not all roles restart")
        until(platform.ready, message="the platform is not ready")
        assert not before & {pid for role in roles for pid in platform.pids(role)}
    assert "Traceback" not in platform.output()


def test_evaluators_killed_repeatedly_never_make_a_scenario_crashed(
    start_platform: StartPlatform, expected_results: Callable[[str], ExpectedResults]
) -> None:
    """Only three deaths at one task that is run alone poison that task; rapid kills do not."""
    rng = random.Random(9)
    platform = start_platform(**SHORT_LEASES)
    # One worker: the tasks that are done after a kill are done by the next evaluator.
    id = platform.submit(**LOADS["noop"], workers=1)["id"]
    for _ in range(8):
        wait_for_tasks(platform, id, platform.get(id)["tasks"]["done"] + rng.randrange(1, TASKS // 13))
        platform.kill("evaluator", rng)
    ended = platform.wait_for_end(id, TIMEOUT)
    assert (ended["state"], ended["tasks"]["failed"]) == ("succeeded", 0)
    assert results_digest(platform, id) == expected_results("noop")[1]


def test_a_process_killed_during_finalization_is_replaced_within_seconds(start_platform: StartPlatform) -> None:
    platform = start_platform(**SHORT_LEASES)
    submission = {
        "dataset": "noop",
        "runtime": "python",
        "scenarios": {"range": [0, 200_000]},
        "params": {"batch": 256},
    }
    id = platform.submit(**submission)["id"]
    until(lambda: platform.get(id)["tasks"]["done"] == 200_000, TIMEOUT, "the tasks are not done")
    until(lambda: is_being_finalized(platform, id), message="no job finalizes the simulation", every=0.005)
    assert platform.get(id)["state"] == "running"  # the job has only started
    for pid in platform.pids("jobs"):
        platform.kill_process(pid)
    assert platform.wait_for_end(id, 60.0)["state"] == "succeeded"


def test_a_simulator_that_kills_its_process_costs_one_scenario(platform: PlatformProcess) -> None:
    ended = platform.run(
        model=MODELS / "echo.py", dataset="noop", scenarios={"range": [0, 200]}, params={"crash_at": 77}
    )
    assert (ended["state"], ended["tasks"]["failed"]) == ("succeeded", 1)
    results = platform.results(ended["id"])
    assert has_one_result_per_task(results, 200)
    assert [result["task"] for result in results if result["status"] != "ok"] == [77]
    assert results[77]["status"] == "crashed"
    assert "simulator" in results[77]["error"]
