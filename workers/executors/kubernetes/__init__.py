"""Kubernetes executor kind. The client and everything that talks to the API server is imported by `open` only."""

from typing import TYPE_CHECKING

from workers.executors.base import ExecutorKind, LocalPaths
from workers.executors.kubernetes.options import KubernetesOptions, parse

if TYPE_CHECKING:
    from workers.executors.kubernetes.executor import KubernetesExecutor


def open(name: str, options: KubernetesOptions, paths: LocalPaths) -> "KubernetesExecutor":
    """Return the executor of a cluster. No request is sent yet, so an unreachable cluster does not block the start."""
    from workers.executors.kubernetes.access import open_access
    from workers.executors.kubernetes.client import KubernetesClient
    from workers.executors.kubernetes.executor import KubernetesExecutor
    from workers.executors.kubernetes.metrics import ClusterMetrics

    metrics = ClusterMetrics(name)
    access = open_access(options.kubeconfig, options.context)
    return KubernetesExecutor(
        name,
        KubernetesClient(access, time_out=options.time_out, observer=metrics.observe_call),
        options,
        metrics,
        url=options.runner_api_url or paths.runner_api_url,
    )


#: Container images have the environments; the pods of a gang start together and find each other.
KIND = ExecutorKind(options=KubernetesOptions, parser=parse, open=open, own_environments=True, gangs=True)
