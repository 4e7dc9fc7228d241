"""Processor time a call of the Kubernetes API client (`kube/`), beside http.client and the package's typed objects."""

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
#: Rounds, in each of which all clients take their turn, and calls of an operation in a round.
ROUNDS = 7
CALLS = {"get": 200, "create": 100, "list": 8}
#: Clients by name: `kube/`, the standard library alone, the package's typed objects; and `kube/` with metadata only.
OURS, BARE, TYPED, METADATA = "kube", "http.client", "typed", "metadata"
CONFIG_MAPS, POD_PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps", f"/api/v1/namespaces/{NAMESPACE}/pods"
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
    """Measure on a real API server: a thousand pods that nobody schedules, each as large as a launch's."""
    with Cluster() as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        cluster.until(lambda: cluster.get(account) is not None, "the namespace has an account")
        ours, bare = KubernetesClient(access_of(str(cluster.kubeconfig)), time_out=30.0), ApiClient(cluster.kubeconfig)
        typed = new_client_from_config(str(cluster.kubeconfig))
        try:
            for number in range(PODS):
                ours.create(POD_PATH, _pod(number))
            return _measured(ours, bare, CoreV1Api(typed)) | {"import": _imported()}
        finally:
            for client in (ours, bare, typed):
                client.close()


def _pod(number: int) -> dict[str, Any]:
    """Return the pod of a launch, for a scheduler that does not exist."""
    [owner, *_] = manifests.launch_objects(launch(f"{number}"), parse({}), manifests.ServedApis())
    template = owner["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    spec = {**template["spec"], "schedulerName": "none", "restartPolicy": "Never"}
    metadata = {"name": f"pod-{number}", "labels": owner["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _measured(ours: KubernetesClient, bare: ApiClient, typed: CoreV1Api) -> Figures:
    names = (f"map-{number}" for number in itertools.count())
    one = f"{CONFIG_MAPS}/{_create(ours, next(names))}"
    name = one.rpartition("/")[2]
    operations: dict[str, dict[str, Operation]] = {
        "get": {
            OURS: lambda: ours.get(one, MetadataOnly),
            BARE: lambda: bare.get(one, MetadataOnly),
            TYPED: lambda: typed.read_namespaced_config_map(name, NAMESPACE),
        },
        "create": {
            OURS: lambda: _create(ours, next(names)),
            BARE: lambda: _create(bare, next(names)),
            TYPED: lambda: typed.create_namespaced_config_map(NAMESPACE, _config_map(next(names))),
        },
        "list": {
            OURS: lambda: _all(ours.get(POD_PATH, PodList, resourceVersion="0").items),
            BARE: lambda: _all(bare.get(POD_PATH, PodList, resourceVersion="0").items),
            TYPED: lambda: _all(typed.list_namespaced_pod(NAMESPACE, resource_version="0").items),
        },
    }
    watches: dict[str, Operation] = {
        OURS: lambda: _all(list(itertools.islice(ours.watch(POD_PATH, seconds=30, quiet=30.0), PODS))),
        METADATA: lambda: _all(
            list(itertools.islice(ours.watch(POD_PATH, seconds=30, quiet=30.0, metadata_only=True), PODS))
        ),
        BARE: lambda: _all(list(itertools.islice(bare.watch(POD_PATH, timeoutSeconds="30"), PODS))),
    }
    found: Figures = {}
    for operation, clients in operations.items():
        found[operation] = _taken(clients, CALLS[operation], 1)
    return found | {"watch": _taken(watches, 1, PODS)}


def _create(client: KubernetesClient | ApiClient, name: str) -> str:
    client.create(CONFIG_MAPS, _config_map(name))
    return name


def _config_map(name: str) -> Any:
    metadata = {"name": name, "labels": {"windtunnel/launch": name}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "value" * 20}}


def _all(items: Any) -> None:
    """Check that nothing is missing."""
    if len(items) != PODS:
        raise RuntimeError(f"{len(items)} of {PODS}")


def _taken(clients: dict[str, Operation], calls: int, parts: int) -> dict[str, Any]:
    """Let clients take turns; return processor and wall seconds a call, or a part of one, by client."""
    spent: dict[str, list[float]] = {client: [] for client in clients}
    walls: dict[str, list[float]] = {client: [] for client in clients}
    for operation in clients.values():
        operation()
    for _ in range(ROUNDS):
        for client, operation in clients.items():
            began = time.process_time()
            for _ in range(calls):
                start = time.perf_counter()
                operation()
                walls[client].append((time.perf_counter() - start) / parts)
            spent[client].append((time.process_time() - began) / calls / parts)
    return {
        client: {
            "cpu": spread(spent[client]),
            "wall": percentile(walls[client], 0.5),
            "calls": len(walls[client]),
            # of neighbours in time, so that a slow moment of the machine affects both
            "ratio": spread(one / bare for one, bare in zip(spent[client], spent[BARE], strict=True)),
        }
        for client in clients
    }


def _imported() -> dict[str, Any]:
    taken = [subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, check=True) for _ in range(ROUNDS + 1)]
    pairs = [tuple(map(float, done.stdout.split())) for done in taken[1:]]  # the first one may compile
    return {"cpu": spread(cpu for cpu, _ in pairs), "mib": spread(kib / 1024 for _, kib in pairs)}


def section(found: Figures) -> str:
    """Return the section."""
    titles = {
        "get": "get a ConfigMap",
        "create": "create a ConfigMap",
        "list": f"list {PODS:,} pods",
        "watch": f"an event of a watch ({PODS:,} pods)",
    }
    rows = []
    for operation, title in titles.items():
        clients = found[operation]
        cells = [
            spanned(clients[client]["cpu"], milliseconds) if client in clients else "" for client in (OURS, BARE, TYPED)
        ]
        ratio = spanned(clients[OURS]["ratio"], "{:.2f}".format)
        walls = [milliseconds(clients[client]["wall"]) if client in clients else "" for client in (OURS, BARE, TYPED)]
        rows.append([title, *cells, ratio, " / ".join(walls).rstrip(" /")])
    head = ["processor time a call", "kube/", "http.client", "typed objects", "ratio", "p50 of the whole call"]
    imported, metadata = found["import"], found["watch"][METADATA]["cpu"]
    return "\n\n".join(
        [
            "A real API server (1.35) on the same machine, over TLS with a client certificate; the clients take turns "
            "in one process. *kube/*: the `kubernetes` package's `ApiClient` and `Watch`, raw responses into msgspec; "
            "*http.client*: the standard library with msgspec, as the executor's own client was; *typed objects*: the "
            "package's `CoreV1Api`. *Ratio*: kube/ to http.client, of neighbours in time. The last column is in the "
            "same order.",
            table(head, rows),
            f"A watch that asks for metadata only, as the executor's does: {spanned(metadata, milliseconds)} an event. "
            f"Importing the package costs {spanned(imported['cpu'], milliseconds)} of processor time and "
            f"{imported['mib']['median']:.0f} MiB of resident memory, once, in a process that calls an API server.",
        ]
    )
