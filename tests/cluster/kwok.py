"""Simulated nodes: KWOK acts as their kubelet, and reports their pods as running and finished."""

import json
from pathlib import Path
from typing import Any

from tests.cluster.tools import tool

#: Taint of simulated nodes.
TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
LABELS = {"type": "kwok"}
#: Nodes per rack.
RACK = 64
_STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")


def stages(*, lasting: bool = False) -> str:
    """Return KWOK's stages of nodes and pods; ``lasting``: a job's pods never finish."""
    source = tool("source", "kwok", "sigs.k8s.io/kwok")
    files = [path for stage in _STAGES for path in sorted((source / "kustomize" / "stage" / stage).glob("[np]o*.yaml"))]
    return "\n---\n".join(path.read_text() for path in files if not (lasting and path.stem == "pod-complete"))


def arguments(kubeconfig: Path, settings: Path, pods: str) -> list[object]:
    """Return KWOK's command."""
    return [
        tool("kwok"),
        f"--kubeconfig={kubeconfig}",
        f"--config={settings}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
        "--server-address=127.0.0.1:10247",
        f"--cidr={pods}",
        f"--node-ip={pods.partition('/')[0]}",
    ]


def node(number: int) -> dict[str, Any]:
    """Return a simulated node: large, with eight devices, in a rack."""
    name = f"fake-{number:05d}"
    size = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"}
    annotations = {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"}
    place = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"rack-{number // RACK:04d}"}
    labels = {"kubernetes.io/os": "linux"} | LABELS | place
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": annotations,
            "labels": labels,
        },
        "spec": {"taints": [TAINT]},
        "status": {"capacity": size, "allocatable": size},
    }


def nodes(first: int, last: int) -> str:
    """Return a list of simulated nodes, for `kubectl create`."""
    items = [node(number) for number in range(first, last)]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
