"""The chart rendered by Helm: sets of values, and the objects of each set."""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.cached import tool

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm"
PREVIOUS = sorted((Path(__file__).parent / "previous").glob("*.tgz"))
VERSION = "1.35.4"
Object = dict[str, Any]

#: Sets of values; each set is rendered, linted and validated by the schemas.
CASES: Mapping[str, Mapping[str, Any]] = {
    "trial": {"trial": True},
    "trial with volumes": {"trial": True, "bundled": {"persistent": True, "storageClass": "fast"}},
    "production": {
        "existingSecret": "windtunnel-secrets",
        "settings": {"leaseTtl": 2.5, "maxUpload": 8 << 30, "names": ["sim.example"], "logLevel": "DEBUG"},
        "image": {"repository": "registry.example/windtunnel-server", "digest": f"sha256:{'0' * 64}"},
        "api": {"autoscaling": {"enabled": True}, "nodeSelector": {"pool": "front"}},
        "ingress": {"enabled": True, "hosts": ["sim.example"], "tlsSecret": "tls", "className": "nginx"},
        "projects": {"list": [{"name": "red", "quota": {"pods": 100}}, {"name": "blue"}]},
        "monitoring": {"serviceMonitor": {"enabled": True}},
        "scs": {"zones": ["a", "b"], "storage": {"storageClass": "local"}},
        "executors": {
            "kubeconfigsSecret": "clusters",
            "others": [{"name": "west", "kind": "kubernetes", "workers": 8, "options": {"kubeconfig": "/etc/west"}}],
        },
    },
    "alerts and a dashboard": {
        "trial": True,
        "monitoring": {"rules": {"enabled": True, "labels": {"release": "prometheus"}}, "dashboard": {"enabled": True}},
    },
    "stores by values": {
        "settings": {
            "databaseUrl": "postgresql+psycopg://u:p@db/w",
            "redisUrl": "rediss://:p@redis:6379/0",
            "objectStoreUrl": "s3://bucket?endpoint=https://s3.example",
            "objectStoreAccessKey": "key",
            "objectStoreSecretKey": "secret",
            "token": "let-me-in-to-the-chart",
        },
        "connectionsSecret": "connections",
    },
    "people and pods sign in": {
        "trial": True,
        "settings": {"multiUser": True, "clusterAccounts": ["team-a=red:submitter"]},
        "identityProvidersSecret": "identity-providers",
    },
    "clients hash keys themselves": {"trial": True, "scs": {"envoy": {"enabled": False}}},
    "no cache": {"trial": True, "scs": {"enabled": False}},
    "dispatch creates namespaces": {"trial": True, "projects": {"create": True, "list": []}},
    "one namespace for all projects": {
        "trial": True,
        "projects": {"namespace": "launches", "list": [{"name": "red"}, {"name": "blue"}]},
    },
    "launches elsewhere": {
        "trial": True,
        "executors": {
            "cluster": {"enabled": False},
            "others": [{"name": "farm", "kind": "slurm", "workers": 9, "options": {}}],
        },
    },
}


def helm(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Run helm without access to this machine's clusters."""
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "KUBECONFIG": "/dev/null"}
    return subprocess.run(
        [tool("helm"), *arguments], input=stdin, capture_output=True, text=True, timeout=120, env=environ
    )


def render(
    values: Mapping[str, Any],
    chart: Path = CHART,
    *,
    release: str = "windtunnel",
    namespace: str = "sim",
    version: str = VERSION,
) -> list[Object]:
    """Return the objects, or raise ValueError with helm's message."""
    process = helm(
        *("template", release, str(chart), "--namespace", namespace, "--kube-version", version, "--values", "-"),
        stdin=json.dumps(values),
    )
    if process.returncode:
        raise ValueError(process.stderr)
    return [document for document in yaml.safe_load_all(process.stdout) if document]


@cache
def rendered(case: str) -> tuple[Object, ...]:
    """Return the objects of a case; they must not be changed."""
    return tuple(render(CASES[case]))


def of_kind(objects: Iterable[Object], *kinds: str) -> list[Object]:
    """Return the objects of some kinds."""
    return [item for item in objects if item["kind"] in kinds]


def named(objects: Iterable[Object], kind: str, name: str) -> Object:
    """Return the object of this kind and name."""
    [item] = [item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return item


def key(item: Object) -> tuple[str, str, str]:
    """Return the unique key of an object: kind, namespace and name."""
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def templates(objects: Iterable[Object]) -> dict[str, Object]:
    """Return the pod templates by the name of their workload."""
    workloads = of_kind(objects, "Deployment", "DaemonSet", "StatefulSet", "Job")
    return {item["metadata"]["name"]: item["spec"]["template"] for item in workloads}


def containers(template: Object) -> Sequence[Object]:
    """Return all containers of a pod, init containers too."""
    return [*template["spec"].get("initContainers", ()), *template["spec"]["containers"]]


def environment(objects: Sequence[Object], container: Object) -> dict[str, str]:
    """Return the environment variables of a container from ConfigMaps and Secrets that the chart creates."""
    variables: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        for kind, ref in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
            for item in of_kind(objects, kind):
                if ref in source and item["metadata"]["name"] == source[ref]["name"]:
                    variables |= item.get("data") or {}
                    variables |= item.get("stringData") or {}
    return variables | {
        variable["name"]: variable["value"] for variable in container.get("env", ()) if "value" in variable
    }
