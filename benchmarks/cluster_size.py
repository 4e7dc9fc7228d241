"""Cost of launches by size on simulated nodes, compared with kubectl and the same objects; a thousand at once."""

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
from benchmarks.processes import memory, part, tree, used
from core.domain.launches import Gang, Launch, Phase, Placement
from datasets.catalogue import datasets
from tests.cluster import kwok
from tests.cluster.cluster import Cluster
from workers.executors import kubernetes
from workers.executors.base import LocalPaths
from workers.executors.kubernetes import manifests
from workers.executors.kubernetes.executor import KubernetesExecutor
from workers.executors.kubernetes.options import parse

NAMESPACE = "played"
#: Pods per Job, and pods per JobSet: one rack per Job, one node per pod.
RACK = kwok.RACK
SIZES = (256, 1024, 2048, 4096)
#: Largest size that kubectl applies as well: larger ones take minutes each.
BESIDE = 1024
AT_ONCE = 1000
#: Seconds after which a size is abandoned and its state recorded.
PATIENCE = 300.0
#: Seconds between two polls, as in a dispatcher with work.
TICK = 0.5
_SMALL = {"cpu": "100m", "memory": "256Mi"}


def options(cluster: Cluster) -> dict[str, Any]:
    """Return executor options for pods on simulated nodes; their programs never run."""
    return {
        "kubeconfig": str(cluster.kubeconfig),
        "namespace": NAMESPACE,
        "installation": NAMESPACE,
        "node_selector": kwok.LABELS,
        "tolerations": [kwok.TAINT],
        "time_out": 60.0,
        **{name: _SMALL for name in ("runner", "evaluator", "model_server")},
    }


@contextmanager
def opened(cluster: Cluster) -> Iterator[KubernetesExecutor]:
    """Open an executor, as the dispatcher does."""
    nowhere = Path(tempfile.gettempdir())
    here = LocalPaths(home=nowhere, run_dir=nowhere, environments=nowhere, runner_api_url="")
    executor = kubernetes.open("played", kubernetes.KIND.parse(options(cluster)), here)
    try:
        yield executor
    finally:
        executor.close()


def launch(id: str, **changes: Any) -> Launch:
    """Return a launch of one worker."""
    given: dict[str, Any] = {"workers": 1, "runtime": "python", "format": "python", "dataset": "noop"}
    given |= {"version": datasets()["noop"].version, "model_digest": f"sha256:{0:064x}", "model_key": "models/none"}
    return Launch(id=id, simulation_id=id, attempt=1, url="http://192.0.2.1:1", token="none", **given | changes)


def gang(id: str, pods: int) -> Launch:
    """Return a JobSet with a Job of 64 pods per rack: racks are exclusive to a Job, nodes to a pod."""
    alone = Placement(resources={"nvidia.com/gpu": "8"}, exclusive="topology.kubernetes.io/zone")
    shape = Gang(size=RACK, slices=pods // RACK, image="none", command=("none",))
    return launch(id, workers=pods, gang=shape, placement=alone)


def spent() -> dict[str, float]:
    """Return the processor seconds of this process and its descendants, by component."""
    found: dict[str, float] = {}
    for pid in tree(os.getpid()):
        try:
            name = "the executor" if pid == os.getpid() else part(pid)
            found[name] = found.get(name, 0.0) + used(pid)
        except OSError:
            continue  # it ended meanwhile
    return found


def since(before: dict[str, float]) -> dict[str, float]:
    """Return processor seconds used since ``before``; processes that ended meanwhile are omitted."""
    return {name: value - before.get(name, 0.0) for name, value in spent().items() if value > before.get(name, 0.0)}


def held() -> dict[str, float]:
    """Return the memory of each component in MiB."""
    found = memory(os.getpid())
    return {name: each["mib"] for name, each in found.items()}


class Played:
    """A cluster of simulated nodes, and the state of its JobSets."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self._path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"

    def up(self, id: str) -> int:
        """Return how many of a JobSet's jobs have all their pods ready."""
        found = self.cluster.control_plane.request("GET", f"{self._path}/wt-{id}")
        groups = (found.get("status") or {}).get("replicatedJobsStatus") or []
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

    def wait(self, up: Callable[[], bool], look: Callable[[], object] = lambda: None) -> bool:
        """Wait for a condition, polling in between; return whether it held in time."""
        ends, next_look = time.monotonic() + PATIENCE, 0.0
        while not up():
            if time.monotonic() > ends:
                return False
            if time.monotonic() >= next_look:
                look()
                next_look = time.monotonic() + TICK
            time.sleep(0.1)
        return True


def one_large(played: Played, pods: int, *, ours: bool) -> dict[str, Any]:
    """Run a JobSet of so many pods, by the executor or by kubectl, and delete it."""
    id = f"{'o' if ours else 'k'}{pods}"
    wanted, racks = gang(id, pods), pods // RACK
    others = busy(1.0)
    with opened(played.cluster) as executor:
        before, began, looked = spent(), time.perf_counter(), [0.0]

        def look() -> None:
            start = time.thread_time()
            executor.observe([id])
            looked[0] += time.thread_time() - start

        if ours:
            executor.submit(wanted)
        else:
            objects = manifests.launch_objects(wanted, parse(options(played.cluster)), manifests.ServedApis())
            document = {"apiVersion": "v1", "kind": "List", "items": objects}
            played.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))
        handed_over = time.perf_counter() - began
        whole = played.wait(lambda: played.up(id) >= racks, look if ours else lambda: None)
        seconds = time.perf_counter() - began
        found: dict[str, Any] = {"pods": pods, "whole": whole, "seconds": seconds, "submit": handed_over}
        found |= {"looking": looked[0], "cpu": since(before), "mib": held(), "others": others}
        if not whole:
            found["there"], found["running"] = played.pods()
        executor.cancel(id)
    found["cleared"] = played.clear()
    print(f"{pods} pods, {'ours' if ours else 'kubectl'}: {seconds:.1f} s, submit {handed_over:.3f} s", flush=True)
    return found


def large(played: Played, sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """Run a JobSet of each size; stop at the first that was not running, or not deleted, in time."""
    rows: list[dict[str, Any]] = []
    for pods in sizes:
        played.cluster.kwok(pods, lasting=True)
        row = {"ours": one_large(played, pods, ours=True)}
        rows.append(row)
        if pods <= BESIDE and row["ours"]["cleared"] is not None:
            row["kubectl"] = one_large(played, pods, ours=False)
        if not all(result["whole"] and result["cleared"] is not None for result in row.values()):
            break
    return {"rows": rows, "nodes": max(sizes), "patience": PATIENCE}


def many(played: Played, count: int = AT_ONCE) -> dict[str, Any]:
    """Run so many launches of one worker at once, observe all of them, and cancel them."""
    played.cluster.kwok(min(SIZES), lasting=True)
    ids = [f"m{number:04d}" for number in range(count)]
    others = busy(1.0)
    with opened(played.cluster) as executor:
        before, began, each = spent(), time.perf_counter(), []
        for id in ids:
            start = time.perf_counter()
            executor.submit(launch(id))
            each.append(time.perf_counter() - start)
        created, running = time.perf_counter() - began, [0]

        def look() -> bool:
            seen = executor.observe(ids).values()
            running[0] = sum(status.phase is Phase.RUNNING for status in seen)
            return running[0] == count

        whole = played.wait(look)
        seconds, cpu, mib = time.perf_counter() - began, since(before), held()
    looks = []
    for _ in range(10):
        with opened(played.cluster) as fresh:
            fresh.observe([])  # finds out what is served, and connects
            start, spun = time.perf_counter(), time.thread_time()
            fresh._queries.owners(ids)
            looks.append((time.perf_counter() - start, time.thread_time() - spun))
    raw, packed = _bytes(played)
    with opened(played.cluster) as executor:
        executor.observe(ids)
        began = time.perf_counter()
        for id in ids:
            executor.cancel(id)
        cancelled = time.perf_counter() - began
        left = executor.orphans([])
    cleared = played.clear()
    print(f"{count} launches: created in {created:.1f} s, {running[0]} run after {seconds:.1f} s", flush=True)
    return {
        "count": count,
        "submit": tail(each),
        "created": created,
        "whole": whole,
        "running": running[0],
        "seconds": seconds,
        "cpu": cpu,
        "mib": mib,
        "look": tail([wall for wall, _ in looks]),
        "look_cpu": tail([cpu for _, cpu in looks]),
        "bytes": raw,
        "bytes_packed": packed,
        "cancelled": cancelled,
        "strays": len(left),
        "cleared": cleared,
        "others": others,
    }


def _bytes(played: Played) -> tuple[int, int]:
    """Return the bytes of a list of all launches, plain and compressed."""
    path = f"{played._path}?labelSelector=windtunnel%2Finstallation%3D{NAMESPACE}&resourceVersion=0"
    plain = json.dumps(played.cluster.control_plane.request("GET", path), separators=(",", ":")).encode()
    return len(plain), len(gzip.compress(plain, 1))
