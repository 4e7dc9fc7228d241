"""Components of a test cluster: CoreDNS, and operators from their own manifests with images built here."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.network import Network
from tests.cluster.tools import COREDNS, JOBSET, KUEUE, MPI_OPERATOR, TRAINER, tool

JOBSETS = "jobset.x-k8s.io/v1alpha2"
QUEUES = "kueue.x-k8s.io/v1beta2"
#: API groups for which Kueue's webhooks are called: its own, Jobs and JobSets.
WEBHOOK_GROUPS = frozenset({"kueue.x-k8s.io", "batch", "jobset.x-k8s.io"})
#: Components run on the first node, so that other nodes need not have their images and may be stopped.
FIRST_NODE = {"kubernetes.io/hostname": "node-0"}
#: Time limit of probes, generous for a busy machine.
GENEROUS_LIMITS = {"timeoutSeconds": 10, "failureThreshold": 6}
CONTAINER = "/spec/template/spec/containers/0"
#: Probes for tests: short intervals, generous limits.
FAST_PROBES = (
    {"op": "replace", "path": f"{CONTAINER}/readinessProbe/initialDelaySeconds", "value": 1},
    {"op": "replace", "path": f"{CONTAINER}/readinessProbe/periodSeconds", "value": 1},
    *(
        {"op": "add", "path": f"{CONTAINER}/{probe}/{field}", "value": value}
        for probe in ("readinessProbe", "livenessProbe")
        for field, value in GENEROUS_LIMITS.items()
    ),
)
#: Resource requests for a small machine.
SMALL_REQUESTS = {
    "op": "replace",
    "path": f"{CONTAINER}/resources/requests",
    "value": {"cpu": "10m", "memory": "64Mi"},
}
COREFILE = """.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        ttl 5
    }
    template ANY ANY . {
        rcode NXDOMAIN
    }
    cache 5 {
        denial 100 1
    }
}
"""


def coredns(network: Network) -> list[dict[str, Any]]:
    """Return the objects of CoreDNS, without upstream servers: other names do not exist."""
    metadata, name = {"name": "coredns", "namespace": "kube-system"}, "system:coredns"
    rbac = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    container = {
        "name": "coredns",
        "image": COREDNS,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "volumeMounts": [{"name": "settings", "mountPath": "/etc/coredns"}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1} | GENEROUS_LIMITS,
    }
    pod = {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "nodeSelector": FIRST_NODE,
        "containers": [container],
        "volumes": [{"name": "settings", "configMap": {"name": "coredns"}}],
    }
    labels = {"k8s-app": "kube-dns"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"Corefile": COREFILE}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata | {"name": "kube-dns"},
            "spec": {
                "clusterIP": network.dns,
                "selector": labels,
                "ports": [{"name": kind.lower(), "port": 53, "protocol": kind} for kind in ("UDP", "TCP")],
            },
        },
    ]


def jobset(folder: Path) -> Path:
    """Write JobSet's own manifests, with the image built here, into a folder for `kubectl apply --kustomize`."""
    source = tool("source", "kubernetes", "sigs.k8s.io/jobset")
    shutil.copytree(source / "config", folder / "config", copy_function=copy_without_permissions)
    image = "us-central1-docker.pkg.dev/k8s-staging-images/jobset/jobset"
    return customised(folder, "config/default", image, JOBSET, [*FAST_PROBES, SMALL_REQUESTS])


def trainer(folder: Path) -> Path:
    """Write Trainer's own manifests, with the image built here and without the JobSet among them."""
    source = tool("source", "trainer", "github.com/kubeflow/trainer/v2")
    shutil.copytree(source / "manifests", folder / "manifests", copy_function=copy_without_permissions)
    kustomization = folder / "manifests" / "overlays" / "manager" / "kustomization.yaml"
    lines = [line for line in kustomization.read_text().splitlines() if "third-party/jobset" not in line]
    kustomization.write_text("\n".join(lines) + "\n")
    image = "ghcr.io/kubeflow/trainer/trainer-controller-manager"
    return customised(folder, "manifests/overlays/manager", image, TRAINER, FAST_PROBES)


def mpi_operator(folder: Path) -> Path:
    """Write the MPI operator's own manifests, with the image built here. Its leader election cannot be switched off."""
    source = tool("source", "mpi-operator", "github.com/kubeflow/mpi-operator")
    shutil.copytree(source / "manifests", folder / "manifests", copy_function=copy_without_permissions)
    return customised(folder, "manifests/overlays/standalone", "mpioperator/mpi-operator", MPI_OPERATOR, [])


def kueue(folder: Path) -> Path:
    """Write Kueue's own manifests, with the image built here: for Jobs and JobSets that name a queue.

    Pods and other kinds start without it. Its aggregated API is left out: while such an API does not answer, no
    namespace can be deleted.
    """
    source = tool("source", "kueue", "sigs.k8s.io/kueue")
    shutil.copytree(source / "config", folder / "config", copy_function=copy_without_permissions)
    components = folder / "config" / "components"
    settings = components / "manager" / "controller_manager_config.yaml"
    configuration = yaml.safe_load(settings.read_text())
    configuration["integrations"] = {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]}
    settings.write_text(yaml.safe_dump(configuration | {"featureGates": {"VisibilityOnDemand": False}}))
    kustomization = components / "visibility" / "kustomization.yaml"
    lines = kustomization.read_text().splitlines(keepends=True)
    kustomization.write_text("".join(line for line in lines if "apiservice" not in line))
    webhooks = components / "webhook" / "manifests.yaml"
    documents = list(yaml.safe_load_all(webhooks.read_text()))
    for document in documents:
        document["webhooks"] = [
            hook for hook in document["webhooks"] if hook["rules"][0]["apiGroups"][0] in WEBHOOK_GROUPS
        ]
    webhooks.write_text(yaml.safe_dump_all(documents))
    patches = webhooks.with_name("kustomization.yaml")
    # the patches belong to webhooks that are removed above
    patches.write_text(patches.read_text().partition("\npatches:")[0] + "\n")
    image = "us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueue"
    return customised(folder, "config/default", image, KUEUE, [*FAST_PROBES, SMALL_REQUESTS])


def flavor(name: str) -> dict[str, Any]:
    """Return a ResourceFlavor that matches any node."""
    return {"apiVersion": QUEUES, "kind": "ResourceFlavor", "metadata": {"name": name}}


def training_runtime(name: str) -> dict[str, Any]:
    """Return a ClusterTrainingRuntime: the minimum that restricted pod security accepts."""
    container = {
        "name": "node",
        "image": "none:0",
        "imagePullPolicy": "Never",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    confined = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {"spec": {"securityContext": confined, "containers": [container]}}
    metadata = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    node = {"name": "node", "template": {"metadata": metadata, "spec": {"template": pod}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": [node]}},
        },
    }


def customised(folder: Path, base: str, image: str, built: str, changes: Sequence[dict[str, Any]]) -> Path:
    """Write a kustomization: the image built here instead of the published image, and probes with short intervals.

    There is one replica, so leader election is switched off where possible: an operator that loses an election exits,
    which happens when the API server of a busy machine answers late.
    """
    for settings in folder.rglob("controller_manager_config.yaml"):
        settings.write_text(settings.read_text().replace("leaderElect: true", "leaderElect: false"))
    name, tag = built.rsplit(":", 1)
    patch = [
        {"op": "add", "path": f"{CONTAINER}/imagePullPolicy", "value": "Never"},
        {"op": "add", "path": "/spec/template/spec/nodeSelector", "value": FIRST_NODE},
        *changes,
    ]
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [base],
        "images": [{"name": image, "newName": name, "newTag": tag}],
        "patches": [{"target": {"kind": "Deployment"}, "patch": json.dumps(patch)}],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(document, indent=1))
    return folder


def copy_without_permissions(source: str, target: str) -> str:
    """Copy a file without its permissions: modules are kept read-only."""
    return str(shutil.copyfile(source, target))
