"""POST to first result, with pauses and in a rush: seconds from a submission to its first line, on one connection."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import peer_systems
from benchmarks.figures import tail
from benchmarks.platform_client import PlatformClient
from benchmarks.platform_process import PlatformProcess, running_platform
from benchmarks.processes import memory, metered, total

POSTS = 100
#: Seconds between the end of a simulation and the next POST, like a person's pause; the next warm runner starts in it.
PAUSE = 1.5
#: A rush: simulations in a row without a pause, and callers at once, each with so many in a row.
ROW, CALLERS, EACH = 20, 8, 10
#: Seconds after a rush in which its warm runners are given back.
AFTERWARDS = 60.0
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


def rush(platform: PlatformProcess, submission: dict[str, Any], callers: int, each: int) -> dict[str, Any]:
    """Let callers post at once, each again as soon as its simulation has ended; return latencies and costs."""
    seconds: list[tuple[float, float]] = []
    failures: list[Exception] = []
    together = threading.Barrier(callers)

    def call() -> None:
        client = platform.connect()
        together.wait()
        try:
            seconds.extend(first_result(client, submission) for _ in range(each))
        except Exception as error:
            failures.append(error)
        finally:
            client.close()

    threads = [threading.Thread(target=call) for _ in range(callers)]
    with metered(platform.process.pid) as spent:
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        elapsed = time.perf_counter() - began
    if failures:
        raise failures[0]
    count = callers * each
    return {
        "first": tail([first for first, _ in seconds]),
        "whole": tail([last for _, last in seconds]),
        "rate": count / elapsed,
        "cpu": {name: used / count for name, used in spent.items()},
    }


def rushes(platform: PlatformProcess, submissions: Mapping[str, dict[str, Any]] = SUBMISSIONS) -> dict[str, Any]:
    """Measure twenty in a row and eight callers at once, and the memory right after the rush and a minute later."""
    figures: dict[str, Any] = {}
    for name, submission in submissions.items():
        figures[name] = {
            "row": rush(platform, submission, 1, ROW),
            "at_once": rush(platform, submission, CALLERS, EACH),
            "mib": total(memory(platform.process.pid)),
        }
        time.sleep(AFTERWARDS)
        figures[name]["mib_afterwards"] = total(memory(platform.process.pid))
        print(f"{name}: {figures[name]}", flush=True)
    return figures


def warmed(platform: PlatformProcess, submissions: Sequence[dict[str, Any]]) -> None:
    """Run each submission, with pauses in which its kind gets a warm runner."""
    client = platform.connect()
    for submission in submissions:
        for _ in range(3):
            first_result(client, submission)
            time.sleep(5)
    client.close()


def measure(posts: int = POSTS, pause: float = PAUSE) -> dict[str, Any]:
    """Measure each submission with pauses and in a rush, and Ray's job API."""
    figures: dict[str, Any] = {"pause": pause, "kinds": {}}
    with running_platform() as platform:
        client = platform.connect()
        for name, submission in SUBMISSIONS.items():
            warmed(platform, [submission])
            paced = []
            for _ in range(posts):
                paced.append(first_result(client, submission))
                time.sleep(pause)
            figures["kinds"][name] = {
                "first": tail([first for first, _ in paced]),
                "whole": tail([last for _, last in paced]),
            }
            print(f"{name}: {figures['kinds'][name]}", flush=True)
        figures["rushes"] = {"row": ROW, "callers": CALLERS, "each": EACH, "kinds": rushes(platform)}
    job = peer_systems.run_script("ray_job", "10")
    figures["ray_job"] = {"version": job["version"], **tail(job["seconds"])}
    print(f"Ray job: {figures['ray_job']}", flush=True)
    return figures
