"""Rushes of simulations on one machine: forked runners, callers at once, killed fork servers, cold starts."""

import json
import random
import threading
from typing import Any

from tests.system.conftest import StartPlatform
from tests.system.platform_process import PlatformProcess, has_one_result_per_task
from tests.waiting import until

TEN = {"runtime": "python", "dataset": "noop", "scenarios": {"range": [0, 10]}}
SLOW = {"runtime": "python", "dataset": "noop", "scenarios": {"range": [0, 200]}, "params": {"sleep_ms": 20}}
CALLERS, EACH = 8, 3


def launch_events(platform: PlatformProcess, id: str) -> list[dict[str, Any]]:
    """Return the launch events of a simulation that has ended."""
    lines = platform.http.get(f"/v1/simulations/{id}/events").text.splitlines()
    kinds = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    bodies = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    return [body for kind, body in zip(kinds, bodies, strict=True) if kind == "launch"]


def test_callers_at_once_get_a_result_for_each_task_and_equal_ones(platform: PlatformProcess) -> None:
    results: list[list[dict[str, Any]]] = []

    def call() -> None:
        for _ in range(EACH):
            id = platform.submit(**TEN)["id"]
            assert platform.wait_for_end(id)["state"] == "succeeded"
            results.append(platform.results(id))

    threads = [threading.Thread(target=call) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == CALLERS * EACH
    assert all(has_one_result_per_task(lines, 10) for lines in results)
    values = {json.dumps([line["metrics"] for line in lines]) for lines in results}
    assert len(values) == 1, "equal provenance gives equal results"


def test_runners_are_forked_and_no_process_is_used_twice(start_platform: StartPlatform) -> None:
    platform = start_platform()
    platform.run(**TEN)
    until(lambda: {"runner", "evaluator", "model_server"} <= forked_roles(platform), message="nothing is forked")
    for role in ("runner", "evaluator", "model_server"):
        before = set(platform.pids(role))
        platform.run(**TEN)
        until(
            lambda role=role, before=before: before - set(platform.pids(role)), message=f"a {role} outlives its launch"
        )
        until(lambda role=role, before=before: set(platform.pids(role)) - before, message=f"no {role} is forked")


def forked_roles(platform: PlatformProcess) -> set[str]:
    """Return the roles of processes whose parent is a fork server."""
    table = platform.processes_with_parents()
    servers = set(platform.pids("fork_server"))
    return {
        role
        for role in ("runner", "evaluator", "model_server")
        for pid in platform.pids(role)
        if table.get(pid) in servers
    }


def test_a_simulation_goes_on_after_all_fork_servers_were_killed(start_platform: StartPlatform) -> None:
    platform = start_platform()
    platform.run(**TEN)
    until(lambda: "runner" in forked_roles(platform), message="nothing is forked")
    id = platform.submit(**SLOW)["id"]
    until(lambda: platform.get(id)["tasks"]["done"] > 0, message="no task is done")
    for pid in platform.pids("fork_server"):
        platform.kill_process(pid)
    ended = platform.wait_for_end(id)
    assert ended["state"] == "succeeded", ended
    assert has_one_result_per_task(platform.results(id), 200)
    assert platform.kill("fork_server", random.Random(0)), "they are started again"


def test_a_cold_start_says_in_the_events_that_processes_are_started(start_platform: StartPlatform) -> None:
    platform = start_platform(warm_runners=0)
    id = platform.submit(**SLOW)["id"]
    platform.wait_for_end(id)
    notes = launch_events(platform, id)
    assert ["no warm runner was there" in note["message"] for note in notes if note["key"] == "cold"] == [True]
