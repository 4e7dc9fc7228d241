"""POST to first result where a pod waits for just such a simulation, on a real node, through the installed chart."""

import json
import statistics
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.cluster_first import ASKED, service
from benchmarks.figures import busy, tail
from tests.cluster.cluster import Cluster
from tests.cluster.house import PROJECT, Installed

RUNS = 20
KIND = {"project": "default", "runtime": ASKED["runtime"], "dataset": ASKED["dataset"], "pods": 1}
#: Seconds after a pod is ready until the dispatcher has seen that: it looks every second.
SEEN = 2.5


def keep(installed: Installed, *kinds: Mapping[str, Any]) -> None:
    """Have these kinds kept warm from now on."""
    executors = installed._values["executors"]
    cluster = executors["cluster"]
    options = cluster["options"] | {"warm": list(kinds)}
    installed._values = installed._values | {"executors": executors | {"cluster": cluster | {"options": options}}}
    installed.upgrade()
    installed._settle()
    installed.until(lambda: installed.ready, "the API answers")


def waiting(cluster: Cluster) -> list[str]:
    """Return the launches that wait and whose pods are ready."""
    selector = ["-n", PROJECT, "-l", "windtunnel/warm", "-o", "json"]
    found = json.loads(cluster.kubectl("get", "jobsets", *selector))["items"]
    return [
        one["metadata"]["name"]
        for one in found
        if any(group.get("ready") for group in one.get("status", {}).get("replicatedJobsStatus", []))
    ]


def measure(cluster: Cluster, installed: Installed, runs: int = RUNS) -> dict[str, Any]:
    """Submit when one waits, and again when another does."""
    keep(installed, KIND)
    firsts: list[float] = []
    lasts: list[float] = []
    others: list[float] = []
    for run in range(runs + 1):  # the first finds caches cold, and does not count
        cluster.until(lambda: len(waiting(cluster)) == 1, "a pod waits", 120.0)
        time.sleep(SEEN)
        if run:
            others.append(busy(1.0))
        (one,) = waiting(cluster)
        wire = service(cluster)
        wire.get("/healthz")  # the connection is there
        began = time.perf_counter()
        lines = wire.lines(ASKED)
        next(lines)
        first = time.perf_counter() - began
        for _ in lines:
            pass
        last = time.perf_counter() - began
        wire.close()
        installed.until(lambda one=one: one not in waiting(cluster), "it was taken", 30.0)  # type: ignore[misc]
        if run:
            firsts.append(first)
            lasts.append(last)
            print(f"{first:.3f} s with a pod that waited", flush=True)
    keep(installed)
    cluster.until(lambda: not installed.left(), "nothing waits any more", 120.0)
    return {"first": tail(firsts), "last": tail(lasts), "others": statistics.median(others)}
