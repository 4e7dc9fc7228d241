"""Kubernetes executor of one cluster."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workers.executors.kubernetes.access import open_access
from workers.executors.kubernetes.client import KubernetesClient
from workers.executors.kubernetes.executor import KubernetesExecutor
from workers.executors.kubernetes.metrics import ClusterMetrics
from workers.executors.kubernetes.options import parse

#: Container images contain the environments.
OWN_ENVIRONMENTS = True
#: Gangs are supported: their pods start together and find each other.
GANGS = True

if TYPE_CHECKING:
    from workers.executors.registry import LocalPaths


def open(name: str, options: Mapping[str, Any], paths: "LocalPaths") -> KubernetesExecutor:
    """Return the executor of a cluster. No request is sent yet, so an unreachable cluster does not block the start."""
    parsed_options = parse(options)
    metrics = ClusterMetrics(name)
    access = open_access(parsed_options.kubeconfig, parsed_options.context)
    return KubernetesExecutor(
        name,
        KubernetesClient(access, time_out=parsed_options.time_out, observer=metrics.observe_call),
        parsed_options,
        metrics,
        url=parsed_options.runner_api_url or paths.runner_api_url,
    )


__all__ = ["OWN_ENVIRONMENTS", "KubernetesExecutor", "open"]
