"""The chart as Helm renders it: what a person gives, and the objects that come of it."""

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

#: What a person may say; each is rendered, linted and held to the schemas.
SAID: Mapping[str, Mapping[str, Any]] = {
    "trial": {"trial": True},
    "trial that keeps": {"trial": True, "bundled": {"persistent": True, "storageClass": "fast"}},
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
    "given values": {
        "settings": {
            "databaseUrl": "postgresql+psycopg://u:p@db/w",
            "redisUrl": "rediss://:p@redis:6379/0",
            "objectStoreUrl": "s3://bucket?endpoint=https://s3.example",
            "objectStoreAccessKey": "key",
            "objectStoreSecretKey": "secret",
            "token": "let-me-in",
        },
        "connectionsSecret": "connections",
    },
    "clients hash by themselves": {"trial": True, "scs": {"envoy": {"enabled": False}}},
    "no cache": {"trial": True, "scs": {"enabled": False}},
    "dispatch makes namespaces": {"trial": True, "projects": {"create": True, "list": []}},
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


def helm(*arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    """Run helm, which knows nothing of this machine's clusters."""
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "KUBECONFIG": "/dev/null"}
    return subprocess.run(
        [tool("helm"), *arguments], input=given, capture_output=True, text=True, timeout=120, env=environ
    )


def render(
    values: Mapping[str, Any],
    chart: Path = CHART,
    *,
    release: str = "windtunnel",
    namespace: str = "sim",
    version: str = VERSION,
) -> list[Object]:
    """Return the objects, or raise ValueError with what helm says."""
    done = helm(
        *("template", release, str(chart), "--namespace", namespace, "--kube-version", version, "--values", "-"),
        given=json.dumps(values),
    )
    if done.returncode:
        raise ValueError(done.stderr)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@cache
def rendered(said: str) -> tuple[Object, ...]:
    """Return what comes of one of the above; not to be changed."""
    return tuple(render(SAID[said]))


def of_kind(objects: Iterable[Object], *kinds: str) -> list[Object]:
    """Return those of some kinds."""
    return [one for one in objects if one["kind"] in kinds]


def named(objects: Iterable[Object], kind: str, name: str) -> Object:
    """Return the one of this kind and name."""
    [found] = [one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def key(one: Object) -> tuple[str, str, str]:
    """Return what tells an object from all others."""
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def templates(objects: Iterable[Object]) -> dict[str, Object]:
    """Return the pods' templates by the name of what makes them."""
    makers = of_kind(objects, "Deployment", "DaemonSet", "StatefulSet", "Job")
    return {one["metadata"]["name"]: one["spec"]["template"] for one in makers}


def containers(template: Object) -> Sequence[Object]:
    """Return all of a pod's containers, those of its beginning too."""
    return [*template["spec"].get("initContainers", ()), *template["spec"]["containers"]]


def environment(objects: Sequence[Object], container: Object) -> dict[str, str]:
    """Return the variables that a container sees, of those sources that the chart makes."""
    seen: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        for kind, ref in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
            for one in of_kind(objects, kind):
                if ref in source and one["metadata"]["name"] == source[ref]["name"]:
                    seen |= one.get("data") or {}
                    seen |= one.get("stringData") or {}
    return seen | {one["name"]: one["value"] for one in container.get("env", ()) if "value" in one}
