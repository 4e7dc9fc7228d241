"""Pod logs: the lines of a replica's runner, followed across the pods that replace each other."""

import itertools
import time
from collections.abc import Iterator

from core.domain.scheduling.launches import Phase
from kube.client import KubernetesClient
from kube.messages import ApiRefused, path_of
from workers.executors.kubernetes.api_errors import error_of
from workers.executors.kubernetes.api_queries import ApiQueries
from workers.executors.kubernetes.objects import EPOCH, INDEX, POD, Pod
from workers.executors.kubernetes.status_mapping import RUNNER, phase_of

#: Seconds between checks for a pod's log, and seconds of silence after which the pod itself is checked again.
LOG_POLL, LOG_SILENCE = 0.5, 60.0


def follow(client: KubernetesClient, queries: ApiQueries, launch_id: str, replica: int) -> Iterator[bytes]:
    """Yield the log of the replica's runner (or its first container) until the pod is gone. Raise PermissionError."""
    line_count, uid = 0, ""
    while (pod := _newest_pod(queries, launch_id, replica)) is not None:
        if uid != pod.metadata.uid:  # a new pod replaced the old pod
            line_count, uid = 0, pod.metadata.uid
        container_names = [container.name for container in pod.spec.containers]
        container = RUNNER if RUNNER in container_names else container_names[0]
        path = path_of(POD.api, POD.plural, pod.metadata.namespace, pod.metadata.name, "log")
        try:
            lines = client.lines(path, quiet=LOG_SILENCE, container=container, follow="true")
            for line in itertools.islice(lines, line_count, None):
                line_count += 1
                yield line
            return
        except TimeoutError:
            continue  # the log is silent: the node may be gone, and a new pod may run elsewhere
        except ApiRefused as refused:
            if refused.status not in (400, 404):  # 400: its container has not been created yet
                raise PermissionError(str(error_of(refused, pod.metadata.namespace))) from None
        time.sleep(LOG_POLL)


def _newest_pod(queries: ApiQueries, launch_id: str, replica: int) -> Pod | None:
    """Return the newest pod with this index; wait for it while the launch may still create it."""
    while True:
        pods = [pod for pod in queries.pods([launch_id]).get(launch_id, []) if _replica_index(pod) == replica]
        if pods:
            return max(pods, key=lambda pod: pod.metadata.creation_timestamp or EPOCH)
        _, owner = queries.owners([launch_id], recent=True).get(launch_id, (None, None))
        if owner is None or phase_of(owner) is Phase.ENDED:
            return None
        time.sleep(LOG_POLL)


def _replica_index(pod: Pod) -> int:
    return int(pod.metadata.labels.get(INDEX, "0"))
