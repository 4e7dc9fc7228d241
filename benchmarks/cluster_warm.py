"""POST to first result with a matching warm pod, on a real node, with the installed chart."""

import statistics
import time
from typing import Any

from benchmarks.cluster_first import SUBMISSION, service
from benchmarks.figures import busy, tail
from tests.cluster.cluster import Cluster
from tests.cluster.platform_release import PlatformRelease

RUNS = 20
WARM_PODS = {"project": "default", "runtime": SUBMISSION["runtime"], "dataset": SUBMISSION["dataset"], "pods": 1}
#: Seconds from a pod's readiness until the dispatcher has observed it: it polls every second.
OBSERVATION_DELAY = 2.5


def measure(cluster: Cluster, installed: PlatformRelease, runs: int = RUNS) -> dict[str, Any]:
    """Submit when a warm pod is ready, and again when the next is ready."""
    installed.set_executor_options(warm=[WARM_PODS])
    firsts: list[float] = []
    lasts: list[float] = []
    loads: list[float] = []
    for run in range(runs + 1):  # the first run finds cold caches and is not counted
        cluster.until(lambda: len(installed.ready_warm_launches()) == 1, "there is a warm pod", 120.0)
        time.sleep(OBSERVATION_DELAY)
        if run:
            loads.append(busy(1.0))
        (warm_pod,) = installed.ready_warm_launches()
        client = service(cluster)
        client.get("/healthz")  # opens the connection
        began = time.perf_counter()
        lines = client.lines(SUBMISSION)
        next(lines)
        first = time.perf_counter() - began
        for _ in lines:
            pass
        last = time.perf_counter() - began
        client.close()
        installed.until(
            lambda warm_pod=warm_pod: warm_pod not in installed.ready_warm_launches(), "the warm pod was taken", 30.0
        )  # type: ignore[misc]
        if run:
            firsts.append(first)
            lasts.append(last)
            print(f"{first:.3f} s with a warm pod", flush=True)
    installed.set_executor_options(warm=[])
    cluster.until(lambda: not installed.remaining_objects(), "no warm pod is left", 120.0)
    return {"first": tail(firsts), "last": tail(lasts), "others": statistics.median(loads)}
