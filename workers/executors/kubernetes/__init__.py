"""Kubernetes: one context's cluster as an executor."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workers.executors.kubernetes.access import open_access
from workers.executors.kubernetes.client import Client
from workers.executors.kubernetes.executor import KubernetesExecutor
from workers.executors.kubernetes.metrics import Measures
from workers.executors.kubernetes.options import parse

#: Images bring what a launch runs in.
OWN_ENVIRONMENTS = True
#: Pods that belong together are started together, and find each other.
GANGS = True

if TYPE_CHECKING:
    from workers.executors.registry import Here


def open(name: str, options: Mapping[str, Any], here: "Here") -> KubernetesExecutor:
    """Return the executor of a cluster; it is asked nothing yet, so that one that is away stops nobody."""
    chosen = parse(options)
    measures = Measures(name)
    access = open_access(chosen.kubeconfig, chosen.context)
    return KubernetesExecutor(
        name,
        Client(access, time_out=chosen.time_out, observer=measures.called),
        chosen,
        measures,
        url=chosen.runner_api_url or here.runner_api_url,
    )


__all__ = ["OWN_ENVIRONMENTS", "KubernetesExecutor", "open"]
