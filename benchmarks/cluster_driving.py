"""car_street in a pod against the local executor on the same machine: the same model, scenarios and workers."""

import time
from typing import Any

from benchmarks.cluster_first import service
from benchmarks.driving import MODEL, SCENARIOS
from benchmarks.figures import busy, spread
from benchmarks.platform_process import PlatformProcess, running_platform
from benchmarks.processes import tree
from benchmarks.platform_client import PlatformClient
from tests.cluster import cgroups
from tests.cluster.cluster import Cluster

REPEAT = 3
RUNS = 4


def drive(wire: PlatformClient, repeat: int) -> dict[str, float]:
    """Return episodes per second between the first results and the last durable one, and seconds from the POST to it.

    The connection is new: the server closes a connection that is idle during the other measurement.
    """
    began = time.perf_counter()
    asked = {"dataset": "car_street", "runtime": "python", "model": MODEL, "repeat": repeat, "workers": 1}
    id = wire.submit(asked)["id"]
    some = None
    while True:
        found = wire.get(f"/v1/simulations/{id}")
        at, done, total = time.perf_counter(), found["tasks"]["done"], found["tasks"]["total"]
        if some is None and done:
            some = (at, done)
        if some is not None and done == total:
            break
        if at - began > 240:
            raise RuntimeError(f"{id} is {found['state']} after 240 s: {found['tasks']}, {found['reason']}")
        time.sleep(0.1)
    wire.until(id)
    ended = wire.get(f"/v1/simulations/{id}")
    if ended["tasks"]["failed"]:
        raise RuntimeError(f"{ended['tasks']['failed']} scenarios failed; the rate would be meaningless")
    wire.close()
    return {"rate": (total - some[1]) / (at - some[0]), "whole": at - began}


def beside(laptop: PlatformProcess, cluster: Cluster) -> None:
    """Put the local platform's processes into a cgroup with the CPU share of a cluster node, which counts as one group.

    Otherwise each process of the laptop would have the share of the whole cluster, and a busy machine would favour it.
    """
    group = f"{cluster._record.cgroup}/laptop"
    cgroups.make(group)
    for hierarchy in cgroups.hierarchies():
        for pid in tree(laptop.process.pid):
            (hierarchy / group.strip("/") / "cgroup.procs").write_text(str(pid))


def measure(cluster: Cluster, repeat: int = REPEAT, runs: int = RUNS) -> dict[str, Any]:
    """Measure pod and local executor alternately, so that a slow minute of the machine affects both."""
    pods: list[dict[str, float]] = []
    laptops: list[dict[str, float]] = []
    others = busy(1.0)
    with running_platform(workers="1") as laptop:
        beside(laptop, cluster)
        for wire in (laptop.wire(), service(cluster)):
            drive(wire, 1)
        for _ in range(runs):
            laptops.append(drive(laptop.wire(), repeat))
            pods.append(drive(service(cluster), repeat))
            print(f"pod {pods[-1]['rate']:.1f}, laptop {laptops[-1]['rate']:.1f} episodes/s", flush=True)
    ratios = [pod["rate"] / here["rate"] for pod, here in zip(pods, laptops, strict=True)]
    return {
        "episodes": SCENARIOS * repeat,
        "model": MODEL,
        "pod": spread(run["rate"] for run in pods),
        "laptop": spread(run["rate"] for run in laptops),
        "ratio": spread(ratios),
        "whole_pod": spread(run["whole"] for run in pods),
        "whole_laptop": spread(run["whole"] for run in laptops),
        "others": others,
    }
