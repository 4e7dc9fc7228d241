"""Storage notes: a running simulation says that its results cannot be stored, and when they can be again."""

import logging
import threading

from common.errors import PlatformError
from core.notifications.notifier import Notifier
from core.store import events, simulations
from core.store.database import Connection, Database

logger = logging.getLogger(__name__)


class StorageNotes:
    """Writes a `storage` event and the `reason` of a simulation when the object store begins and ceases to refuse it.

    A process notes what it sees itself. Best effort: a database that cannot be written either keeps no note.
    """

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self._database = database
        self._notifier = notifier
        self._refusals: dict[str, str] = {}  # by simulation
        self._lock = threading.Lock()

    def refused(self, id: str, detail: str) -> None:
        """Note that results of a simulation could not be stored; its runners try again."""
        with self._lock:
            if self._refusals.get(id) == detail:
                return
            self._refusals[id] = detail
        if not self._note(id, f"its results cannot be stored: {detail} Its runners keep them and try again."):
            with self._lock:
                self._refusals.pop(id, None)  # so that the next refusal is noted

    def stored(self, id: str) -> None:
        """Note that results of a simulation were stored, if they were refused before."""
        if id in self._refusals:
            with self._lock:
                self._refusals.pop(id, None)
            self._note(id, None)

    def _note(self, id: str, reason: str | None) -> bool:
        body = {"stored": reason is None, "message": reason or "its results are stored again"}

        def write(c: Connection) -> None:
            simulations.explain(c, id, reason)
            events.say(c, id, "storage", body, self._database.now(c))

        try:
            self._database.write(write)
        except PlatformError as error:
            logger.warning("simulation %s: %s; this could not be noted: %s", id, body["message"], error.detail)
            return False
        logger.warning("simulation %s: %s", id, body["message"])
        self._notifier.publish(id)
        return True
