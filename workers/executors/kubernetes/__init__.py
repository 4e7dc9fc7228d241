"""Kubernetes executor kind. The client and everything that talks to the API server is imported by `open` only."""

from typing import TYPE_CHECKING

from core.domain.scheduling.executor_config import GangSupport
from workers.executors.base import ExecutorKind, LocalPaths
from workers.executors.kubernetes.options import EQUIVALENTS, KubernetesOptions, parse

if TYPE_CHECKING:
    from workers.executors.kubernetes.executor import KubernetesExecutor


def open(name: str, options: KubernetesOptions, paths: LocalPaths) -> "KubernetesExecutor":
    """Return the executor of a cluster. Raise ValueError if its kubeconfig or service account cannot be used.

    No request is sent and no exec plugin runs yet, so an unreachable cluster does not block the start.
    """
    from kube.access import access_of
    from kube.client import KubernetesClient
    from workers.executors.kubernetes.executor import KubernetesExecutor
    from workers.executors.kubernetes.metrics import ClusterMetrics

    metrics = ClusterMetrics(name)
    access = access_of(options.kubeconfig, options.context)
    client = KubernetesClient(access, time_out=options.time_out, observer=metrics.observe_call)
    client.check()
    return KubernetesExecutor(
        name,
        client,
        options,
        metrics,
        url=options.runner_api_url or paths.runner_api_url,
    )


#: Container images have the environments; the pods of a gang start together and find each other.
KIND = ExecutorKind(
    options=KubernetesOptions,
    parser=parse,
    open=open,
    own_environments=True,
    gangs=lambda _: GangSupport(unattended=True),
    equivalents=EQUIVALENTS,
)
