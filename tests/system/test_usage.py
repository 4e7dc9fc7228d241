"""Usage of a real platform: a run's usage is its launch's, grows with workers, ends with it, and outlives all."""

import time
from typing import Any

from tests.system.conftest import StartPlatform
from tests.system.platform_process import PlatformProcess
from tests.waiting import until

LONG = {"runtime": "python", "dataset": "noop", "scenarios": {"range": [0, 5000]}, "params": {"sleep_ms": 20}}


def usage(platform: PlatformProcess, id: str) -> dict[str, Any]:
    """Return the sum of a simulation, its launches alone; of one that has none, an empty one."""
    answer = platform.http.get("/v1/projects/default/usage", params={"by": "simulation,kind"})
    assert answer.status_code == 200, answer.text
    items = [item for item in answer.json()["items"] if (item["simulation"], item["kind"]) == (id, "simulation")]
    return dict(items[0]) if items else {"worker_seconds": 0.0, "estimated_core_seconds": 0.0, "lost_core_seconds": 0.0}


def still(platform: PlatformProcess, id: str) -> dict[str, Any]:
    """Wait until the usage of a simulation does not change any more, over more than a mark."""
    seen: list[tuple[float, dict[str, Any]]] = []

    def is_still() -> bool:
        seen.append((time.monotonic(), usage(platform, id)))
        since = next(at for at, each in seen if each == seen[-1][1])
        return seen[-1][0] - since > 7.0

    until(is_still, message="it still grows")
    return seen[-1][1]


def run_for(platform: PlatformProcess, workers: int, seconds: float) -> tuple[str, float]:
    """Run a simulation for a time, then cancel it; return its id and how many seconds that took."""
    begun = time.monotonic()
    id = platform.submit(**LONG, workers=workers)["id"]
    until(lambda: platform.get(id)["state"] == "running", message="it does not run")
    time.sleep(seconds)
    assert platform.http.post(f"/v1/simulations/{id}/cancel").status_code == 202
    platform.wait_for_end(id)
    return id, time.monotonic() - begun


def test_the_usage_of_a_run_is_that_of_its_launch_and_ends_when_it_ends(start_platform: StartPlatform) -> None:
    platform = start_platform(workers=2)
    one, seconds = run_for(platform, 1, 8.0)
    alone = still(platform, one)
    assert 8.0 <= alone["worker_seconds"] <= seconds + 2.0, "what was granted, and nothing after"
    assert alone["core_seconds"] == alone["worker_seconds"] and alone["estimated_core_seconds"] == 0
    two, seconds = run_for(platform, 2, 8.0)
    both = still(platform, two)
    assert 16.0 <= both["worker_seconds"] <= 2 * (seconds + 2.0)
    assert platform.http.delete(f"/v1/simulations/{two}").status_code == 204
    until(lambda: platform.http.get(f"/v1/simulations/{two}").status_code == 404)
    assert usage(platform, two) == both


def test_after_a_kill_of_everything_at_most_ten_seconds_are_estimated_and_marked(
    start_platform: StartPlatform,
) -> None:
    platform = start_platform(workers=1)
    begun = time.monotonic()
    id = platform.submit(**LONG, workers=1)["id"]
    until(lambda: platform.get(id)["tasks"]["done"] > 0, message="no task is done")
    time.sleep(6.0)
    platform.crash()
    until(lambda: not platform.processes(), message="processes are left")
    lasted = time.monotonic() - begun
    time.sleep(15.0)  # nobody is there: this is not use
    platform.start()
    until(lambda: usage(platform, id)["estimated_core_seconds"] > 0, message="no estimate")
    assert platform.http.post(f"/v1/simulations/{id}/cancel").status_code == 202
    platform.wait_for_end(id)
    again = still(platform, id)
    assert 0 < again["estimated_core_seconds"] <= 10.0
    launches = platform.http.get("/v1/projects/default/usage", params={"by": "kind"}).json()["total"]
    assert again["lost_core_seconds"] <= lasted + 10.0 and launches["lost_core_seconds"] > 0
