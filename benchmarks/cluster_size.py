"""Launches on simulated Kubernetes nodes: cost by size, compared with kubectl on the same objects; 1,000 at once."""

import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figures import busy, tail
from benchmarks.processes import component_of, memory, processor_seconds, tree
from core.domain.scheduling.launches import Gang, Launch, Phase, Placement
from datasets.catalogue import datasets
from tests.cluster import kwok
from tests.cluster.cluster import Cluster
from workers.executors import kubernetes
from workers.executors.base import LocalPaths
from workers.executors.kubernetes import manifests
from workers.executors.kubernetes.executor import KubernetesExecutor
from workers.executors.kubernetes.options import parse

NAMESPACE = "simulated"
#: Pods per Job, and pods per JobSet: one rack per Job, one node per pod.
RACK = kwok.RACK
SIZES = (256, 1024, 2048, 4096)
#: Largest size that kubectl applies too: larger sizes take minutes each.
KUBECTL_LIMIT = 1024
AT_ONCE = 1000
#: Seconds after which a size is abandoned and its state recorded.
PATIENCE = 300.0
#: Seconds between two polls, as in a dispatcher with work.
TICK = 0.5
_SMALL_REQUESTS = {"cpu": "100m", "memory": "256Mi"}


def options(cluster: Cluster) -> dict[str, Any]:
    """Return executor options for pods on simulated nodes; their programs never run."""
    return {
        "kubeconfig": str(cluster.kubeconfig),
        "namespace": NAMESPACE,
        "installation": NAMESPACE,
        "node_selector": kwok.LABELS,
        "tolerations": [kwok.TAINT],
        "time_out": 60.0,
        **{name: _SMALL_REQUESTS for name in ("runner", "evaluator", "model_server")},
    }


@contextmanager
def open_executor(cluster: Cluster) -> Iterator[KubernetesExecutor]:
    """Open an executor, as the dispatcher does."""
    temporary = Path(tempfile.gettempdir())
    paths = LocalPaths(home=temporary, run_dir=temporary, environments=temporary, runner_api_url="")
    executor = kubernetes.open("simulated", kubernetes.KIND.parse(options(cluster)), paths)
    try:
        yield executor
    finally:
        executor.close()


def launch(id: str, **changes: Any) -> Launch:
    """Return a launch of one worker."""
    fields: dict[str, Any] = {"workers": 1, "runtime": "python", "format": "python", "dataset": "noop"}
    fields |= {"version": datasets()["noop"].version, "model_digest": f"sha256:{0:064x}", "model_key": "models/none"}
    return Launch(id=id, simulation_id=id, attempt=1, url="http://192.0.2.1:1", token="none", **fields | changes)


def gang(id: str, pods: int) -> Launch:
    """Return a JobSet with a Job of 64 pods per rack: racks are exclusive to a Job, nodes to a pod."""
    placement = Placement(resources={"nvidia.com/gpu": "8"}, exclusive="topology.kubernetes.io/zone")
    gang_options = Gang(size=RACK, slices=pods // RACK, image="none", command=("none",))
    return launch(id, workers=pods, gang=gang_options, placement=placement)


def seconds_by_component() -> dict[str, float]:
    """Return the processor seconds of this process and its descendants, by component."""
    seconds: dict[str, float] = {}
    for pid in tree(os.getpid()):
        try:
            name = "the executor" if pid == os.getpid() else component_of(pid)
            seconds[name] = seconds.get(name, 0.0) + processor_seconds(pid)
        except OSError:
            continue  # the process has ended
    return seconds


def used_since(before: dict[str, float]) -> dict[str, float]:
    """Return processor seconds used since ``before``; processes that have ended since then are omitted."""
    return {
        name: value - before.get(name, 0.0)
        for name, value in seconds_by_component().items()
        if value > before.get(name, 0.0)
    }


def memory_by_component() -> dict[str, float]:
    """Return the memory of each component in MiB."""
    parts = memory(os.getpid())
    return {name: component["mib"] for name, component in parts.items()}


class SimulatedCluster:
    """A cluster of simulated nodes, and the state of its JobSets."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self._path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"

    def ready_jobs(self, id: str) -> int:
        """Return how many of a JobSet's jobs have all their pods ready."""
        jobset = self.cluster.control_plane.request("GET", f"{self._path}/wt-{id}")
        groups = (jobset.get("status") or {}).get("replicatedJobsStatus") or []
        return sum(group.get("ready", 0) + group.get("succeeded", 0) for group in groups)

    def pods(self) -> tuple[int, int]:
        """Return how many pods there are, and how many of them run."""
        lines = self.cluster.kubectl(
            *("get", "pods", "-n", NAMESPACE, "--no-headers", "-o", "custom-columns=P:.status.phase"), timeout=120
        ).split()
        return len(lines), lines.count("Running")

    def clear(self) -> float | None:
        """Wait until no object is left; return the seconds, or None after the time limit."""
        began = time.perf_counter()
        for kind in ("pods", "jobsets.jobset.x-k8s.io", "secrets", "networkpolicies.networking.k8s.io"):
            if not self.wait(lambda kind=kind: not self._names(kind)):
                return None
        return time.perf_counter() - began

    def _names(self, kind: str) -> str:
        return self.cluster.kubectl("get", kind, "-n", NAMESPACE, "-o", "name").strip()

    def wait(self, condition: Callable[[], bool], poll: Callable[[], object] = lambda: None) -> bool:
        """Wait for a condition, polling in between; return whether it became true in time."""
        ends, next_poll = time.monotonic() + PATIENCE, 0.0
        while not condition():
            if time.monotonic() > ends:
                return False
            if time.monotonic() >= next_poll:
                poll()
                next_poll = time.monotonic() + TICK
            time.sleep(0.1)
        return True


def run_large(simulated: SimulatedCluster, pods: int, *, by_executor: bool) -> dict[str, Any]:
    """Run a JobSet of ``pods`` pods, by the executor or by kubectl, and delete it."""
    id = f"{'o' if by_executor else 'k'}{pods}"
    jobset_launch, racks = gang(id, pods), pods // RACK
    load = busy(1.0)
    with open_executor(simulated.cluster) as executor:
        before, began, observe_seconds = seconds_by_component(), time.perf_counter(), [0.0]

        def observe() -> None:
            start = time.thread_time()
            executor.observe([id])
            observe_seconds[0] += time.thread_time() - start

        if by_executor:
            executor.submit(jobset_launch)
        else:
            objects = manifests.launch_objects(jobset_launch, parse(options(simulated.cluster)), manifests.ServedApis())
            document = {"apiVersion": "v1", "kind": "List", "items": objects}
            simulated.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))
        submitted = time.perf_counter() - began
        all_running = simulated.wait(
            lambda: simulated.ready_jobs(id) >= racks, observe if by_executor else lambda: None
        )
        seconds = time.perf_counter() - began
        result: dict[str, Any] = {"pods": pods, "whole": all_running, "seconds": seconds, "submit": submitted}
        result |= {
            "looking": observe_seconds[0],
            "cpu": used_since(before),
            "mib": memory_by_component(),
            "others": load,
        }
        if not all_running:
            result["there"], result["running"] = simulated.pods()
        executor.cancel(id)
    result["cleared"] = simulated.clear()
    print(f"{pods} pods, {'ours' if by_executor else 'kubectl'}: {seconds:.1f} s, submit {submitted:.3f} s", flush=True)
    return result


def large(simulated: SimulatedCluster, sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """Run a JobSet of each size; stop at the first size that does not run, or is not deleted, in time."""
    rows: list[dict[str, Any]] = []
    for pods in sizes:
        simulated.cluster.kwok(pods, lasting=True)
        row = {"ours": run_large(simulated, pods, by_executor=True)}
        rows.append(row)
        if pods <= KUBECTL_LIMIT and row["ours"]["cleared"] is not None:
            row["kubectl"] = run_large(simulated, pods, by_executor=False)
        if not all(result["whole"] and result["cleared"] is not None for result in row.values()):
            break
    return {"rows": rows, "nodes": max(sizes), "patience": PATIENCE}


def many(simulated: SimulatedCluster, count: int = AT_ONCE) -> dict[str, Any]:
    """Run ``count`` launches of one worker at once, observe all of them, and cancel them."""
    simulated.cluster.kwok(min(SIZES), lasting=True)
    ids = [f"m{number:04d}" for number in range(count)]
    load = busy(1.0)
    with open_executor(simulated.cluster) as executor:
        before, began, submit_seconds = seconds_by_component(), time.perf_counter(), []
        for id in ids:
            start = time.perf_counter()
            executor.submit(launch(id))
            submit_seconds.append(time.perf_counter() - start)
        created, running = time.perf_counter() - began, [0]

        def all_run() -> bool:
            statuses = executor.observe(ids).values()
            running[0] = sum(status.phase is Phase.RUNNING for status in statuses)
            return running[0] == count

        all_running = simulated.wait(all_run)
        seconds, cpu, mib = time.perf_counter() - began, used_since(before), memory_by_component()
    observations = []
    for _ in range(10):
        with open_executor(simulated.cluster) as new_executor:
            new_executor.observe([])  # detects the served APIs, and connects
            start, thread_began = time.perf_counter(), time.thread_time()
            new_executor._queries.owners(ids)
            observations.append((time.perf_counter() - start, time.thread_time() - thread_began))
    plain_bytes, compressed_bytes = _bytes(simulated)
    with open_executor(simulated.cluster) as executor:
        executor.observe(ids)
        began = time.perf_counter()
        for id in ids:
            executor.cancel(id)
        cancelled = time.perf_counter() - began
        orphans = executor.orphans([])
    cleared = simulated.clear()
    print(f"{count} launches: created in {created:.1f} s, {running[0]} run after {seconds:.1f} s", flush=True)
    return {
        "count": count,
        "submit": tail(submit_seconds),
        "created": created,
        "whole": all_running,
        "running": running[0],
        "seconds": seconds,
        "cpu": cpu,
        "mib": mib,
        "look": tail([wall for wall, _ in observations]),
        "look_cpu": tail([cpu for _, cpu in observations]),
        "bytes": plain_bytes,
        "bytes_packed": compressed_bytes,
        "cancelled": cancelled,
        "orphans": len(orphans),
        "cleared": cleared,
        "others": load,
    }


def _bytes(simulated: SimulatedCluster) -> tuple[int, int]:
    """Return the bytes of a list of all launches, plain and compressed."""
    path = f"{simulated._path}?labelSelector=windtunnel%2Finstallation%3D{NAMESPACE}&resourceVersion=0"
    plain = json.dumps(simulated.cluster.control_plane.request("GET", path), separators=(",", ":")).encode()
    return len(plain), len(gzip.compress(plain, 1))
