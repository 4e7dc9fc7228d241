"""car_street in a pod against the local executor on the same machine: the same model, scenarios and workers."""

import time
from typing import Any

from benchmarks.cluster_first import service
from benchmarks.driving import MODEL, SCENARIOS
from benchmarks.figures import busy, spread
from benchmarks.platform_client import PlatformClient
from benchmarks.platform_process import PlatformProcess, running_platform
from benchmarks.processes import tree
from tests.cluster import cgroups
from tests.cluster.cluster import Cluster

REPEAT = 3
RUNS = 4


def run_car_street(client: PlatformClient, repeat: int) -> dict[str, float]:
    """Return episodes per second from the first results to the last durable result, and seconds from the POST to it.

    The connection must be new: the server closes a connection that is idle during the other measurement.
    """
    began = time.perf_counter()
    submission = {"dataset": "car_street", "runtime": "python", "model": MODEL, "repeat": repeat, "workers": 1}
    id = client.submit(submission)["id"]
    first_results = None
    while True:
        simulation = client.get(f"/v1/simulations/{id}")
        moment, done, total = time.perf_counter(), simulation["tasks"]["done"], simulation["tasks"]["total"]
        if first_results is None and done:
            first_results = (moment, done)
        if first_results is not None and done == total:
            break
        if moment - began > 240:
            state, tasks, reason = (simulation[name] for name in ("state", "tasks", "reason"))
            raise RuntimeError(f"{id} is {state} after 240 s: {tasks}, {reason}")
        time.sleep(0.1)
    client.until(id)
    final = client.get(f"/v1/simulations/{id}")
    if final["tasks"]["failed"]:
        raise RuntimeError(f"{final['tasks']['failed']} scenarios failed; the rate would be meaningless")
    client.close()
    return {"rate": (total - first_results[1]) / (moment - first_results[0]), "whole": moment - began}


def join_node_cgroup(local: PlatformProcess, cluster: Cluster) -> None:
    """Move the local platform's processes into a cgroup beside the cluster's, so that both have the same CPU share.

    Otherwise each local process would have the share of the whole cluster, and a busy machine would favour it.
    """
    group = f"{cluster._record.cgroup}/laptop"
    cgroups.make(group)
    for hierarchy in cgroups.hierarchies():
        for pid in tree(local.process.pid):
            (hierarchy / group.strip("/") / "cgroup.procs").write_text(str(pid))


def measure(cluster: Cluster, repeat: int = REPEAT, runs: int = RUNS) -> dict[str, Any]:
    """Measure pod and local executor alternately, so that a slow minute of the machine affects both."""
    pod_runs: list[dict[str, float]] = []
    local_runs: list[dict[str, float]] = []
    load = busy(1.0)
    with running_platform(workers="1") as local:
        join_node_cgroup(local, cluster)
        for client in (local.connect(), service(cluster)):
            run_car_street(client, 1)
        for _ in range(runs):
            local_runs.append(run_car_street(local.connect(), repeat))
            pod_runs.append(run_car_street(service(cluster), repeat))
            print(f"pod {pod_runs[-1]['rate']:.1f}, laptop {local_runs[-1]['rate']:.1f} episodes/s", flush=True)
    ratios = [pod["rate"] / local["rate"] for pod, local in zip(pod_runs, local_runs, strict=True)]
    return {
        "episodes": SCENARIOS * repeat,
        "model": MODEL,
        "pod": spread(run["rate"] for run in pod_runs),
        "laptop": spread(run["rate"] for run in local_runs),
        "ratio": spread(ratios),
        "whole_pod": spread(run["whole"] for run in pod_runs),
        "whole_laptop": spread(run["whole"] for run in local_runs),
        "others": load,
    }
