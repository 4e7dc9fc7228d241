"""Chaos: any process is killed at any time; no result is lost or doubled, and all equal those of an undisturbed run."""

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
from tests.system.platform_process import MODELS, ROLES, PlatformProcess, lives, untimed, whole
from tests.waiting import until

#: Short leases, so that what is lost with an agent comes back soon.
HASTE = {"lease_ttl": 3}
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
Undisturbed = tuple[list[bytes], str]
#: Seconds a disturbed run may take; every death of the agent costs a lease's time to live and a new evaluator_pair.
PATIENCE = 150.0


@pytest.fixture(scope="module")
def undisturbed(platform: PlatformProcess) -> Iterator[Callable[[str], Undisturbed]]:
    """Run a load undisturbed, once for all tests; return its results without timing, and its digest."""
    known: dict[str, Undisturbed] = {}

    def play(load: str) -> tuple[list[bytes], str]:
        if load not in known:
            ended = platform.run(**LOADS[load], wait_timeout=PATIENCE)
            assert ended["state"] == "succeeded"
            known[load] = ([untimed(line) for line in platform.lines(ended["id"])], digest(platform, ended["id"]))
        return known[load]

    yield play


def digest(platform: PlatformProcess, id: str) -> str:
    """Return the digest of all results."""
    return str(platform.summary(id)["results_digest"])


def differing(platform: PlatformProcess, id: str, undisturbed: Undisturbed) -> list[tuple[bytes, bytes]]:
    """Return the pairs of results that differ from an undisturbed run's, without timing."""
    lines = [untimed(line) for line in platform.lines(id)]
    pairs = [pair for pair in zip(lines, undisturbed[0], strict=True) if pair[0] != pair[1]]
    assert bool(pairs) == (digest(platform, id) != undisturbed[1])
    return pairs


def flushed(platform: PlatformProcess) -> bool:
    """Empty the notifier's store; False while it is down."""
    try:
        platform.flush_redis()
    except (redis.ConnectionError, FileNotFoundError):
        return False
    return True


def reach(platform: PlatformProcess, id: str, goal: int) -> None:
    """Wait until a number of tasks are done: a state for a kill, on machines of any speed."""
    until(lambda: platform.get(id)["tasks"]["done"] >= goal, PATIENCE, f"{goal} tasks are not played", every=0.01)


def claimed(platform: PlatformProcess, id: str) -> bool:
    """Return whether a job finalizes a running simulation; its claim is a column of the row."""
    with closing(sqlite3.connect(f"file:{platform.home}/windtunnel.db?mode=ro", uri=True)) as connection:
        row = connection.execute("SELECT claim FROM simulations WHERE id = ? AND state = 'running'", (id,)).fetchone()
    return row is not None and row[0] is not None


def at_work(platform: PlatformProcess, id: str) -> bool:
    """Return whether results arrive."""
    return bool(platform.get(id)["tasks"]["done"] > 0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killing_every_role_under_load_does_not_change_the_results(
    start_platform: StartPlatform, undisturbed: Callable[[str], Undisturbed], seed: int
) -> None:
    chance = random.Random(seed)
    platform = start_platform(**HASTE)
    ids = {load: platform.submit(**LOADS[load], workers=1)["id"] for load in LOADS}
    for id in ids.values():
        until(lambda id=id: at_work(platform, id), message="nothing is played")
    # A model server at work is the model's own process: who kills it makes that scenario `crashed`, which has a test
    # below.
    victims = [*(role for role in ROLES if role != "model_server"), "flush"]
    chance.shuffle(victims)
    # Victims of the same goal are killed one right after the other; all of them before the load is played.
    goals = sorted(chance.choices(range(TASKS // 40, TASKS * 3 // 4, TASKS // 13), k=len(victims)))
    for victim, goal in zip(victims, goals, strict=True):
        reach(platform, ids["noop"], goal)
        if victim == "flush":
            until(lambda: flushed(platform), message="valkey does not come back")
        else:
            platform.kill(victim, chance)
    for load, id in ids.items():
        ended = platform.wait_for_end(id, PATIENCE)
        assert ended["state"] == "succeeded", ended["reason"]
        assert whole(platform.results(id), ended["tasks"]["total"])
        assert differing(platform, id, undisturbed(load)) == []


@pytest.mark.parametrize("load", LOADS)
def test_a_killed_model_server_costs_only_its_current_scenario(
    start_platform: StartPlatform, undisturbed: Callable[[str], Undisturbed], load: str
) -> None:
    chance = random.Random(5)
    platform = start_platform(**HASTE)
    id = platform.submit(**LOADS[load])["id"]
    total = platform.get(id)["tasks"]["total"]
    goals = sorted(chance.sample(range(1, total * 3 // 4), 6))
    for goal in goals:
        reach(platform, id, goal)
        platform.kill("model_server", chance)
    ended = platform.wait_for_end(id, PATIENCE)
    assert ended["state"] == "succeeded", ended["reason"]
    results = platform.results(id)
    assert whole(results, ended["tasks"]["total"])
    struck = {result["task"] for result in results if result["status"] != "ok"}
    assert len(struck) <= len(goals)
    assert all(results[task]["status"] == "crashed" and results[task]["error"] for task in struck)
    lines, _ = undisturbed(load)
    assert [untimed(line) for task, line in enumerate(platform.lines(id)) if task not in struck] == [
        line for task, line in enumerate(lines) if task not in struck
    ]


def test_after_a_kill_of_every_process_the_next_start_continues(
    start_platform: StartPlatform, undisturbed: Callable[[str], Undisturbed]
) -> None:
    platform = start_platform(**HASTE)
    ids = {load: platform.submit(**LOADS[load])["id"] for load in LOADS}
    reach(platform, ids["noop"], random.Random(7).randrange(1, TASKS // 2))
    platform.crash()
    platform.start()
    for load, id in ids.items():
        ended = platform.wait_for_end(id, PATIENCE)
        assert ended["state"] == "succeeded", ended["reason"]
        assert whole(platform.results(id), ended["tasks"]["total"])
        assert differing(platform, id, undisturbed(load)) == []


def test_ctrl_c_leaves_no_process_and_a_second_start_continues(
    start_platform: StartPlatform, undisturbed: Callable[[str], Undisturbed]
) -> None:
    platform = start_platform(**HASTE)
    id = platform.submit(**LOADS["noop"])["id"]
    until(lambda: at_work(platform, id), message="nothing is played")
    left = platform.processes()
    assert len(left) > 8
    assert platform.interrupt() == 0
    assert [pid for pid, born in left.items() if lives(pid, born)] == []
    platform.start()
    ended = platform.wait_for_end(id, PATIENCE)
    assert ended["state"] == "succeeded", ended["reason"]
    assert differing(platform, id, undisturbed("noop")) == []


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
    assert platform.ready()  # the first is none the worse


def test_roles_that_die_at_the_same_instant_are_all_restarted(start_platform: StartPlatform) -> None:
    platform = start_platform()
    roles = ("api", "runner-api", "dispatch", "jobs", "agent")
    for _ in range(3):
        before = {pid for role in roles for pid in platform.pids(role)}
        for pid in before:
            platform.end(pid)
        until(lambda: all(platform.pids(role) for role in roles), message="not all of them come back")
        until(platform.ready, message="it does not answer")
        assert not before & {pid for role in roles for pid in platform.pids(role)}
    assert "Traceback" not in platform.output()


def test_evaluators_killed_repeatedly_never_make_a_scenario_crashed(
    start_platform: StartPlatform, undisturbed: Callable[[str], Undisturbed]
) -> None:
    """Only three deaths at one task that is run alone poison that task; rapid kills do not."""
    chance = random.Random(9)
    platform = start_platform(**HASTE)
    # One worker: what is done after a kill is the work of the evaluator that came next.
    id = platform.submit(**LOADS["noop"], workers=1)["id"]
    for _ in range(8):
        reach(platform, id, platform.get(id)["tasks"]["done"] + chance.randrange(1, TASKS // 13))
        platform.kill("evaluator", chance)
    ended = platform.wait_for_end(id, PATIENCE)
    assert (ended["state"], ended["tasks"]["failed"]) == ("succeeded", 0)
    assert digest(platform, id) == undisturbed("noop")[1]


def test_a_process_killed_during_finalization_is_replaced_within_seconds(start_platform: StartPlatform) -> None:
    platform = start_platform(**HASTE)
    submission = {
        "dataset": "noop",
        "runtime": "python",
        "scenarios": {"range": [0, 200_000]},
        "params": {"batch": 256},
    }
    id = platform.submit(**submission)["id"]
    until(lambda: platform.get(id)["tasks"]["done"] == 200_000, PATIENCE, "it is not played")
    until(lambda: claimed(platform, id), message="no job sums it up", every=0.005)
    assert platform.get(id)["state"] == "running"  # the job has only begun
    for pid in platform.pids("jobs"):
        platform.end(pid)
    assert platform.wait_for_end(id, 60.0)["state"] == "succeeded"


def test_a_simulator_that_kills_its_process_costs_one_scenario(platform: PlatformProcess) -> None:
    ended = platform.run(
        model=MODELS / "echo.py", dataset="noop", scenarios={"range": [0, 200]}, params={"crash_at": 77}
    )
    assert (ended["state"], ended["tasks"]["failed"]) == ("succeeded", 1)
    results = platform.results(ended["id"])
    assert whole(results, 200)
    assert [result["task"] for result in results if result["status"] != "ok"] == [77]
    assert results[77]["status"] == "crashed"
    assert "simulator" in results[77]["error"]
