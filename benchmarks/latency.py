"""POST to first result, warm: seconds from sending a submission to its first line, on a kept-alive connection."""

import time
from typing import Any

from benchmarks import peer_systems
from benchmarks.figures import tail
from benchmarks.platform_process import running_platform
from benchmarks.platform_client import PlatformClient

POSTS = 100
#: Seconds between the end of a simulation and the next POST, in which a warm runner starts, as between requests of a
#: person.
PAUSE = 1.5
ASKED: dict[str, dict[str, Any]] = {
    "noop, 10 tasks": {"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, 10]}},
    "car_street, 4 scenarios": {
        "dataset": "car_street",
        "runtime": "python",
        "model": "idm",
        "scenarios": {"range": [0, 4]},
    },
}


def first_result(wire: PlatformClient, asked: dict[str, Any]) -> tuple[float, float]:
    """Submit and read the results on the same request; return seconds to the first and to the last result."""
    began = time.perf_counter()
    lines = wire.lines(asked)
    next(lines)
    first = time.perf_counter() - began
    for _ in lines:
        pass
    return first, time.perf_counter() - began


def measure(posts: int = POSTS, pause: float = PAUSE) -> dict[str, Any]:
    """Measure each kind with and without pauses, and Ray's job API."""
    figures: dict[str, Any] = {"pause": pause, "kinds": {}}
    with running_platform() as platform:
        wire = platform.wire()
        for name, asked in ASKED.items():
            for _ in range(3):
                first_result(wire, asked)
                time.sleep(5)
            paced = []
            for _ in range(posts):
                paced.append(first_result(wire, asked))
                time.sleep(pause)
            hasty = [first_result(wire, asked) for _ in range(max(5, posts // 5))]
            figures["kinds"][name] = {
                "first": tail([first for first, _ in paced]),
                "whole": tail([whole for _, whole in paced]),
                "back_to_back": tail([first for first, _ in hasty]),
            }
            print(f"{name}: {figures['kinds'][name]}", flush=True)
    job = peer_systems.ask("ray_job", "10")
    figures["ray_job"] = {"version": job["version"], **tail(job["seconds"])}
    print(f"Ray job: {figures['ray_job']}", flush=True)
    return figures
