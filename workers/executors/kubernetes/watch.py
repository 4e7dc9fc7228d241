"""A thread that rings when something of ours changes in a cluster; nothing depends on it but how soon we look."""

import logging
import threading
from collections.abc import Callable

from workers.executors.kubernetes.api_queries import Look
from workers.executors.kubernetes.client import Client, Refused, path_of
from workers.executors.kubernetes.objects import INSTALLATION
from workers.executors.kubernetes.options import Options

logger = logging.getLogger(__name__)

#: Seconds that one watch lasts, and that the next waits when the last could not be had.
TERM, PAUSE = 240, 5.0


class Watch:
    """Watches the likeliest kind of owner. What it hears is not read: whoever is rung looks for himself."""

    def __init__(
        self, client: Client, options: Options, look: Look, ring: Callable[[], None], *, pause: float = PAUSE
    ) -> None:
        self._client, self._options, self._look, self._ring = client, options, look, ring
        self._pause = pause

    def run(self, stop: threading.Event) -> None:
        """Watch until told to stop; notices that within a term, so let it run in a daemon thread."""
        space = self._options.namespace if self._options.shared_namespace else ""
        query = {
            "watch": "1",
            "labelSelector": f"{INSTALLATION}={self._options.installation}",
            "timeoutSeconds": str(TERM),
        }
        while not stop.is_set():
            try:
                kind = self._look.kinds()[0]
                path = path_of(kind.api, kind.plural, space)
                for _ in self._client.lines(path, quiet=TERM + 60, **query):
                    self._ring()
                    if stop.is_set():
                        return
            except (OSError, Refused) as error:
                logger.info("the watch of launches ended: %s", error)
                stop.wait(self._pause)
