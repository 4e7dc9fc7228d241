"""API watch: wakes the dispatcher when a launch changes. Best effort: it shortens the time to the next poll only."""

import logging
import threading
from collections.abc import Callable

from kube.client import KubernetesClient
from kube.messages import ApiRefused, path_of
from workers.executors.kubernetes.api_queries import ApiQueries
from workers.executors.kubernetes.objects import INSTALLATION
from workers.executors.kubernetes.options import KubernetesOptions

logger = logging.getLogger(__name__)

#: Seconds that a watch lasts, and the pause after a failed watch.
TERM, PAUSE = 240, 5.0


def watch_launches(
    client: KubernetesClient,
    options: KubernetesOptions,
    queries: ApiQueries,
    wake: Callable[[], None],
    stop: threading.Event,
    *,
    pause: float = PAUSE,
) -> None:
    """Watch the most likely kind of owner until ``stop`` is set, which takes up to TERM seconds: use a daemon thread.

    Only metadata is sent: the woken dispatcher observes the launches itself. Each watch continues at the resource
    version at which the last one ended, as long as the API server has it.
    """
    namespace = options.namespace if options.shared_namespace else ""
    path = version = ""
    while not stop.is_set():
        try:
            kind = queries.owner_kinds()[0]
            collection = path_of(kind.api, kind.plural, namespace)
            if collection != path:
                path, version = collection, ""
            for event in client.watch(
                path,
                seconds=TERM,
                quiet=TERM + 60,
                resource_version=version,
                metadata_only=True,
                labelSelector=f"{INSTALLATION}={options.installation}",
            ):
                version = event.resource_version
                if event.type != "BOOKMARK":
                    wake()
                if stop.is_set():
                    return
        except (OSError, ApiRefused) as error:
            version = ""  # it may have expired (410)
            logger.info("Kubernetes API watch of launches ended: %s", error)
            stop.wait(pause)
