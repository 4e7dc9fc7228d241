"""Kubernetes API client (`kube/`): processor time of a call, beside http.client and the package's typed objects."""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from kubernetes.client import CoreV1Api
from kubernetes.config import new_client_from_config

from benchmarks.cluster_size import launch
from benchmarks.figures import percentile, spread
from benchmarks.peers.api_client import ApiClient
from benchmarks.results import Figures, milliseconds, spanned, table
from kube.access import access_of
from kube.client import KubernetesClient
from tests.cluster.cluster import Cluster
from workers.executors.kubernetes import manifests
from workers.executors.kubernetes.objects import MetadataOnly, PodList
from workers.executors.kubernetes.options import parse

NAMESPACE = "calls"
PODS = 1000
#: Rounds, in each of which every client is measured, and calls of an operation in a round.
ROUNDS = 7
CALLS = {"get": 200, "create": 100, "list": 8}
#: Clients by name: `kube/`, the standard library alone, the package's typed objects; and `kube/` with metadata only.
KUBE, HTTP, TYPED, METADATA = "kube", "http.client", "typed", "metadata"
CONFIG_MAPS_PATH, POD_PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps", f"/api/v1/namespaces/{NAMESPACE}/pods"
#: Prints processor seconds and KiB of resident memory that the import of modules costs a process.
IMPORT = """
import sys, time
def resident():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
import kube.client, json, ssl, http.client, yaml
began, before = time.process_time(), resident()
import kube.connection
print(time.process_time() - began, resident() - before)
"""

Operation = Callable[[], object]


def measure() -> Figures:
    """Measure on a real API server with a thousand pods that are never scheduled, each as large as a launch's pod."""
    with Cluster() as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        cluster.until(lambda: cluster.get(account) is not None, "the namespace has an account")
        kube = KubernetesClient(access_of(str(cluster.kubeconfig)), time_out=30.0)
        plain_client = ApiClient(cluster.kubeconfig)
        typed = new_client_from_config(str(cluster.kubeconfig))
        try:
            for number in range(PODS):
                kube.create(POD_PATH, _pod(number))
            return _measure_operations(kube, plain_client, CoreV1Api(typed)) | {"import": _import_cost()}
        finally:
            for client in (kube, plain_client, typed):
                client.close()


def _pod(number: int) -> dict[str, Any]:
    """Return the pod of a launch, for a scheduler that does not exist."""
    [owner, *_] = manifests.launch_objects(launch(f"{number}"), parse({}), manifests.ServedApis())
    template = owner["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    spec = {**template["spec"], "schedulerName": "none", "restartPolicy": "Never"}
    metadata = {"name": f"pod-{number}", "labels": owner["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _measure_operations(kube: KubernetesClient, plain_client: ApiClient, typed: CoreV1Api) -> Figures:
    names = (f"map-{number}" for number in itertools.count())
    config_map_path = f"{CONFIG_MAPS_PATH}/{_create(kube, next(names))}"
    name = config_map_path.rpartition("/")[2]
    operations: dict[str, dict[str, Operation]] = {
        "get": {
            KUBE: lambda: kube.get(config_map_path, MetadataOnly),
            HTTP: lambda: plain_client.get(config_map_path, MetadataOnly),
            TYPED: lambda: typed.read_namespaced_config_map(name, NAMESPACE),
        },
        "create": {
            KUBE: lambda: _create(kube, next(names)),
            HTTP: lambda: _create(plain_client, next(names)),
            TYPED: lambda: typed.create_namespaced_config_map(NAMESPACE, _config_map(next(names))),
        },
        "list": {
            KUBE: lambda: _check_complete(kube.get(POD_PATH, PodList, resourceVersion="0").items),
            HTTP: lambda: _check_complete(plain_client.get(POD_PATH, PodList, resourceVersion="0").items),
            TYPED: lambda: _check_complete(typed.list_namespaced_pod(NAMESPACE, resource_version="0").items),
        },
    }
    watches: dict[str, Operation] = {
        KUBE: lambda: _check_complete(list(itertools.islice(kube.watch(POD_PATH, seconds=30, quiet=30.0), PODS))),
        METADATA: lambda: _check_complete(
            list(itertools.islice(kube.watch(POD_PATH, seconds=30, quiet=30.0, metadata_only=True), PODS))
        ),
        HTTP: lambda: _check_complete(list(itertools.islice(plain_client.watch(POD_PATH, timeoutSeconds="30"), PODS))),
    }
    figures: Figures = {}
    for operation, clients in operations.items():
        figures[operation] = _alternate(clients, CALLS[operation], 1)
    return figures | {"watch": _alternate(watches, 1, PODS)}


def _create(client: KubernetesClient | ApiClient, name: str) -> str:
    client.create(CONFIG_MAPS_PATH, _config_map(name))
    return name


def _config_map(name: str) -> Any:
    metadata = {"name": name, "labels": {"windtunnel/launch": name}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "value" * 20}}


def _check_complete(items: Any) -> None:
    """Check that nothing is missing."""
    if len(items) != PODS:
        raise RuntimeError(f"{len(items)} of {PODS}")


def _alternate(clients: dict[str, Operation], calls: int, parts: int) -> dict[str, Any]:
    """Run the clients in turn; return processor and wall seconds per call, or per part of a call, by client."""
    cpu_seconds: dict[str, list[float]] = {client: [] for client in clients}
    wall_seconds: dict[str, list[float]] = {client: [] for client in clients}
    for operation in clients.values():
        operation()
    for _ in range(ROUNDS):
        for client, operation in clients.items():
            began = time.process_time()
            for _ in range(calls):
                start = time.perf_counter()
                operation()
                wall_seconds[client].append((time.perf_counter() - start) / parts)
            cpu_seconds[client].append((time.process_time() - began) / calls / parts)
    return {
        client: {
            "cpu": spread(cpu_seconds[client]),
            "wall": percentile(wall_seconds[client], 0.5),
            "calls": len(wall_seconds[client]),
            # of consecutive measurements, so that a slow moment of the machine affects both
            "ratio": spread(own / plain for own, plain in zip(cpu_seconds[client], cpu_seconds[HTTP], strict=True)),
        }
        for client in clients
    }


def _import_cost() -> dict[str, Any]:
    runs = [subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, check=True) for _ in range(ROUNDS + 1)]
    pairs = [tuple(map(float, run.stdout.split())) for run in runs[1:]]  # the first process may compile bytecode
    return {"cpu": spread(cpu for cpu, _ in pairs), "mib": spread(kib / 1024 for _, kib in pairs)}


def section(figures: Figures) -> str:
    """Return the section."""
    titles = {
        "get": "get a ConfigMap",
        "create": "create a ConfigMap",
        "list": f"list {PODS:,} pods",
        "watch": f"an event of a watch ({PODS:,} pods)",
    }
    rows = []
    for operation, title in titles.items():
        clients = figures[operation]
        cells = [
            spanned(clients[client]["cpu"], milliseconds) if client in clients else "" for client in (KUBE, HTTP, TYPED)
        ]
        ratio = spanned(clients[KUBE]["ratio"], "{:.2f}".format)
        walls = [milliseconds(clients[client]["wall"]) if client in clients else "" for client in (KUBE, HTTP, TYPED)]
        rows.append([title, *cells, ratio, " / ".join(walls).rstrip(" /")])
    head = ["processor time a call", "kube/", "http.client", "typed objects", "ratio", "p50 of the whole call"]
    import_cost, metadata = figures["import"], figures["watch"][METADATA]["cpu"]
    return "\n\n".join(
        [
            "A real API server (1.35) on the same machine, over TLS with a client certificate; the clients take turns "
            "in one process. *kube/*: the `kubernetes` package's `ApiClient` and `Watch`, raw responses into msgspec; "
            "*http.client*: the standard library with msgspec, as the executor's own client was; *typed objects*: the "
            "package's `CoreV1Api`. *Ratio*: kube/ to http.client, of consecutive measurements. The last column is in "
            "the same order.",
            table(head, rows),
            f"A watch that asks for metadata only, as the executor's does: {spanned(metadata, milliseconds)} an event. "
            f"Importing the package costs {spanned(import_cost['cpu'], milliseconds)} of processor time and "
            f"{import_cost['mib']['median']:.0f} MiB of resident memory, once, in a process that calls an API server.",
        ]
    )
