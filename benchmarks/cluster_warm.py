"""POST to first result where a pod waits for just such a simulation, on a real node, through the installed chart."""

import statistics
import time
from typing import Any

from benchmarks.cluster_first import ASKED, service
from benchmarks.figures import busy, tail
from tests.cluster.cluster import Cluster
from tests.cluster.house import Installed

RUNS = 20
KIND = {"project": "default", "runtime": ASKED["runtime"], "dataset": ASKED["dataset"], "pods": 1}
#: Seconds after a pod is ready until the dispatcher has seen that: it looks every second.
SEEN = 2.5


def measure(cluster: Cluster, installed: Installed, runs: int = RUNS) -> dict[str, Any]:
    """Submit when one waits, and again when another does."""
    installed.option(warm=[KIND])
    firsts: list[float] = []
    lasts: list[float] = []
    others: list[float] = []
    for run in range(runs + 1):  # the first finds caches cold, and does not count
        cluster.until(lambda: len(installed.waiting()) == 1, "a pod waits", 120.0)
        time.sleep(SEEN)
        if run:
            others.append(busy(1.0))
        (one,) = installed.waiting()
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
        installed.until(lambda one=one: one not in installed.waiting(), "it was taken", 30.0)  # type: ignore[misc]
        if run:
            firsts.append(first)
            lasts.append(last)
            print(f"{first:.3f} s with a pod that waited", flush=True)
    installed.option(warm=[])
    cluster.until(lambda: not installed.left(), "nothing waits any more", 120.0)
    return {"first": tail(firsts), "last": tail(lasts), "others": statistics.median(others)}
