"""API watch: wakes the dispatcher when a launch changes. Best effort: it shortens the time to the next poll only."""

import logging
import threading
from collections.abc import Callable

from workers.executors.kubernetes.api_queries import ApiQueries
from workers.executors.kubernetes.client import ApiRefused, KubernetesClient, path_of
from workers.executors.kubernetes.objects import INSTALLATION
from workers.executors.kubernetes.options import KubernetesOptions

logger = logging.getLogger(__name__)

#: Seconds that a watch lasts, and the pause after a failed watch.
TERM, PAUSE = 240, 5.0


class ApiWatch:
    """Watches the most likely kind of owner. Events are not read: the woken dispatcher observes the launches itself."""

    def __init__(
        self,
        client: KubernetesClient,
        options: KubernetesOptions,
        queries: ApiQueries,
        wake: Callable[[], None],
        *,
        pause: float = PAUSE,
    ) -> None:
        self._client, self._options, self._queries, self._wake = client, options, queries, wake
        self._pause = pause

    def run(self, stop: threading.Event) -> None:
        """Watch until ``stop`` is set, which takes up to TERM seconds: run it in a daemon thread."""
        space = self._options.namespace if self._options.shared_namespace else ""
        query = {
            "watch": "1",
            "labelSelector": f"{INSTALLATION}={self._options.installation}",
            "timeoutSeconds": str(TERM),
        }
        while not stop.is_set():
            try:
                kind = self._queries.owner_kinds()[0]
                path = path_of(kind.api, kind.plural, space)
                for _ in self._client.lines(path, quiet=TERM + 60, **query):
                    self._wake()
                    if stop.is_set():
                        return
            except (OSError, ApiRefused) as error:
                logger.info("Kubernetes API watch of launches ended: %s", error)
                stop.wait(self._pause)
