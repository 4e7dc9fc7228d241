"""POST to first result in a pod on a real node, step by step, compared with plain Jobs and a plain JobSet."""

import copy
import os
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.cluster_size import launch
from benchmarks.figures import busy, tail
from benchmarks.platform_client import PlatformClient
from kube.access import access_of
from kube.client import KubernetesClient
from tests.cluster.cluster import Cluster
from tests.cluster.platform_release import NAMESPACE, PROJECT, PlatformRelease
from workers.executors.kubernetes import manifests
from workers.executors.kubernetes.options import parse

RUNS = 10
SUBMISSION = {"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, 10]}, "workers": 1}
#: Program of a plain pod: prints its start time, by the clock that all processes of this machine share.
PRINT = "import time; print(time.clock_gettime(time.CLOCK_BOOTTIME))"
#: Patterns of command lines that identify a pod's processes.
PROCESSES = {
    "runner's program begins": r"workers\.standalone_runner",
    "evaluator's container init begins": r"harness\.runner\.container_init\x00evaluator",
    "model server's container init begins": r"harness\.runner\.container_init\x00model_server",
    "evaluator starts": r"harness\.evaluator\.evaluator import",
    "model server starts": r"harness\.model_server\.confined_start import",
}
#: Resources of containers: the share of two cores that a worker should have. With small requests, other load on the
#: machine would starve the containers, and the figures would say nothing about pods.
CONTAINER_RESOURCES = {
    "runner": {"cpu": "200m", "memory": "256Mi"},
    "evaluator": {"cpu": "650m", "memory": "1Gi"},
    "model_server": {"cpu": "650m", "memory": "1Gi"},
}
#: Seconds between two scans of /proc.
SCAN_INTERVAL = 0.02


def now() -> float:
    """Return the time since the machine booted, the clock of processes' start times."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def install(installed: PlatformRelease) -> None:
    """Install the platform by its chart, with these resources for its pods."""
    installed.install(
        executors={"cluster": {"workers": 2, "grace": 60, "options": {**CONTAINER_RESOURCES, "patience": 60}}}
    )


def service(cluster: Cluster) -> PlatformClient:
    """Open a connection to the API's Service, without port forwarding."""
    address = cluster.kubectl("get", "service", "-n", NAMESPACE, "windtunnel-api", "-o", "jsonpath={.spec.clusterIP}")
    return PlatformClient(5000, address)


class Steps:
    """Records when each step of a launch was first observed: objects by a watch, processes in /proc by their cgroup."""

    def __init__(self, cluster: Cluster) -> None:
        self.times: dict[str, float] = {}
        self._cgroup = cluster._record.cgroup
        self._client = KubernetesClient(access_of(str(cluster.kubeconfig)), time_out=30.0)
        self._stopped = threading.Event()
        jobsets = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{PROJECT}/jobsets"
        watches = ((jobsets, lambda _: ["JobSet is created"]), (f"/api/v1/namespaces/{PROJECT}/pods", _steps_of_pod))
        self._threads = [threading.Thread(target=self._watch, args=watch, daemon=True) for watch in watches]
        self._threads.append(threading.Thread(target=self._scan, daemon=True))

    @contextmanager
    def recording(self) -> Iterator[dict[str, float]]:
        """Record steps while the block runs."""
        self._earlier_processes = {pid for pid in os.listdir("/proc") if pid.isdigit()}
        for thread in self._threads:
            thread.start()
        time.sleep(0.3)  # the watches are open
        self.times.clear()
        try:
            yield self.times
        finally:
            self._stopped.set()
            self._threads[-1].join()

    def _watch(self, path: str, steps: Callable[[dict[str, Any]], list[str]]) -> None:
        for event in self._client.watch(path, seconds=20, quiet=60):
            if self._stopped.is_set():
                return
            for step in steps(event.object) if event.type != "BOOKMARK" else ():
                self.times.setdefault(step, now())

    def _scan(self) -> None:
        while not self._stopped.wait(SCAN_INTERVAL):
            for pid in os.listdir("/proc"):
                if pid.isdigit() and pid not in self._earlier_processes:
                    self._inspect(Path("/proc") / pid)

    def _inspect(self, process: Path) -> None:
        try:
            if self._cgroup not in (process / "cgroup").read_text():
                return
            command = (process / "cmdline").read_text(errors="replace")
        except OSError:
            return  # the process has ended
        for step, pattern in PROCESSES.items():
            if re.search(pattern, command):
                self.times.setdefault(step, now())


def _steps_of_pod(pod: dict[str, Any]) -> list[str]:
    scheduled = ["pod is scheduled"] if pod["spec"].get("nodeName") else []
    return ["pod is created", *scheduled]


def first(cluster: Cluster, client: PlatformClient) -> dict[str, float]:
    """Submit and read the results on the same request; return seconds to each step."""
    steps = Steps(cluster)
    with steps.recording() as times:
        began = now()
        lines = client.lines(SUBMISSION)
        next(lines)
        times["first result"] = now()
        for _ in lines:
            pass
        times["last result"] = now()
    client.close()
    return {step: moment - began for step, moment in times.items()}


#: Plain objects, created without the platform: a Job with one container as by `kubectl create job`, whose only volume
#: is its account's token; a Job without volumes, so that the kubelet mounts nothing; and the JobSet of a complete pod.
JOB, NO_VOLUMES, JOBSET = "job", "void", "jobset"


def start_plain_pod(cluster: Cluster, server: str, id: str, kind: str) -> float:
    """Create plain objects; return seconds until all their containers have started."""
    options = {
        "images": {"runner": server},
        "pull_policy": "Never",
        "namespace": PROJECT,
        "installation": "bare",
    } | CONTAINER_RESOURCES
    objects = copy.deepcopy(manifests.launch_objects(launch(id), parse(options), manifests.ServedApis()))
    owner, *other_objects = objects
    spec = owner["spec"]["replicatedJobs"][0]["template"]["spec"]
    pod = spec["template"]["spec"]
    for container in pod["containers"]:
        container["command"] = ["python", "-c", PRINT]
    if kind != JOBSET:
        pod["containers"] = [pod["containers"][0]]
        pod["containers"][0]["volumeMounts"] = []
        pod["volumes"] = []
        pod["automountServiceAccountToken"] = kind == JOB
        spec = {"template": spec["template"], "backoffLimit": 0}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "metadata": owner["metadata"], "spec": spec}
        other_objects = []
    paths = {
        "Job": f"/apis/batch/v1/namespaces/{PROJECT}/jobs",
        "JobSet": f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{PROJECT}/jobsets",
        "Secret": f"/api/v1/namespaces/{PROJECT}/secrets",
        "NetworkPolicy": f"/apis/networking.k8s.io/v1/namespaces/{PROJECT}/networkpolicies",
    }
    for document in other_objects:
        cluster.control_plane.request("POST", paths[document["kind"]], document)
    began = now()
    cluster.control_plane.request("POST", paths[owner["kind"]], owner)
    selector = f"windtunnel/launch={id}"

    def done() -> bool:
        phase = cluster.kubectl("get", "pods", "-n", PROJECT, "-l", selector, "-o", "jsonpath={.items[*].status.phase}")
        return phase == "Succeeded"

    cluster.until(done, f"{id} is done", 60.0)
    times = cluster.kubectl("logs", "-n", PROJECT, "-l", selector, "--all-containers", "--prefix=false").split()
    for document in (owner, *other_objects):
        cluster.control_plane.request(
            "DELETE", f"{paths[document['kind']]}/{document['metadata']['name']}?propagationPolicy=Background"
        )
    return max(map(float, times)) - began


def measure(cluster: Cluster, installed: PlatformRelease, runs: int = RUNS) -> dict[str, Any]:
    """Measure platform, plain Jobs and plain JobSet alternately, so that a slow minute of the machine affects all."""
    image = "jsonpath={.spec.template.spec.containers[0].image}"
    server = cluster.kubectl("get", "deployment", "-n", NAMESPACE, "windtunnel-api", "-o", image)
    first(cluster, service(cluster))
    runs_of_platform: list[dict[str, float]] = []
    loads: list[float] = []
    plain_pods: dict[str, list[float]] = {kind: [] for kind in (JOB, NO_VOLUMES, JOBSET)}
    for run in range(runs):
        cluster.until(lambda: not installed.remaining_objects(), "nothing is left of the last launch")
        loads.append(busy(1.0))
        runs_of_platform.append(first(cluster, service(cluster)))
        cluster.until(lambda: not installed.remaining_objects(), "nothing is left of the launch")
        for kind, seconds in plain_pods.items():
            seconds.append(start_plain_pod(cluster, server, f"{kind}{run}", kind))
        plain_times = ", ".join(f"{kind} {seconds[-1]:.2f} s" for kind, seconds in plain_pods.items())
        print(f"{runs_of_platform[-1]['first result']:.2f} s, {plain_times}", flush=True)
    steps = {step for run in runs_of_platform for step in run}
    spans = {step: tail([run[step] for run in runs_of_platform if step in run]) for step in steps}
    firsts = [run["first result"] for run in runs_of_platform]
    return {
        "steps": dict(sorted(spans.items(), key=lambda item: item[1]["p50"])),
        "bare": {kind: tail(seconds) for kind, seconds in plain_pods.items()},
        "beyond": {
            kind: tail(
                [
                    platform_seconds - plain_seconds
                    for platform_seconds, plain_seconds in zip(firsts, seconds, strict=True)
                ]
            )
            for kind, seconds in plain_pods.items()
        },
        "others": statistics.median(loads),
    }
