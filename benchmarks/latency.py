"""POST to first result with a warm runner: seconds from a submission to its first line, on a keep-alive connection."""

import time
from typing import Any

from benchmarks import peer_systems
from benchmarks.figures import tail
from benchmarks.platform_client import PlatformClient
from benchmarks.platform_process import running_platform

POSTS = 100
#: Seconds between the end of a simulation and the next POST, like a person's pause; the next warm runner starts in it.
PAUSE = 1.5
SUBMISSIONS: dict[str, dict[str, Any]] = {
    "noop, 10 tasks": {"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, 10]}},
    "car_street, 4 scenarios": {
        "dataset": "car_street",
        "runtime": "python",
        "model": "idm",
        "scenarios": {"range": [0, 4]},
    },
}


def first_result(client: PlatformClient, submission: dict[str, Any]) -> tuple[float, float]:
    """Submit and read the results on the same request; return seconds to the first and to the last result."""
    began = time.perf_counter()
    lines = client.lines(submission)
    next(lines)
    first = time.perf_counter() - began
    for _ in lines:
        pass
    return first, time.perf_counter() - began


def measure(posts: int = POSTS, pause: float = PAUSE) -> dict[str, Any]:
    """Measure each submission with and without pauses, and Ray's job API."""
    figures: dict[str, Any] = {"pause": pause, "kinds": {}}
    with running_platform() as platform:
        client = platform.connect()
        for name, submission in SUBMISSIONS.items():
            for _ in range(3):
                first_result(client, submission)
                time.sleep(5)
            paced = []
            for _ in range(posts):
                paced.append(first_result(client, submission))
                time.sleep(pause)
            back_to_back = [first_result(client, submission) for _ in range(max(5, posts // 5))]
            figures["kinds"][name] = {
                "first": tail([first for first, _ in paced]),
                "whole": tail([last for _, last in paced]),
                "back_to_back": tail([first for first, _ in back_to_back]),
            }
            print(f"{name}: {figures['kinds'][name]}", flush=True)
    job = peer_systems.run_script("ray_job", "10")
    figures["ray_job"] = {"version": job["version"], **tail(job["seconds"])}
    print(f"Ray job: {figures['ray_job']}", flush=True)
    return figures
