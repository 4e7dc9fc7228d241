"""Launch waiters: requests of warm runners block until their launch exists."""

import time
from collections.abc import Sequence

from common.errors import TooManyWaits
from core.notifications.change_notifier import ChangeNotifier
from core.store import launches
from core.store.database import Connection, Database

#: Maximum of waiting requests per process; each occupies a server thread, and other requests need threads too.
SLOTS = 64
#: Seconds between two polls of a process whose only waiters are these, in case a wake-up is lost.
INTERVAL = 1.0
#: `Retry-After` in seconds of a request that finds no free slot.
PAUSE = 2


class LaunchWaiters:
    """Wakes requests once the launch that they wait for exists."""

    def __init__(self, database: Database, changes: ChangeNotifier, *, slots: int = SLOTS) -> None:
        self._database = database
        self._waiters = changes.waiters(_versions, slots=slots, full=lambda: TooManyWaits(retry_after=PAUSE))

    @property
    def waiting(self) -> int:
        """Number of waiting requests in this process."""
        return self._waiters.waiting

    def wait(self, id: str, timeout: float) -> bool:
        """Block until a launch with this id exists, at most ``timeout`` seconds; return whether it does.

        Raises TooManyWaits if no slot is free, or after ``close``; a launch that exists already needs no slot.
        """
        if self._exists(id):
            return True
        until = time.monotonic() + timeout
        with self._waiters.watching(id):
            while True:
                version = self._waiters.version(id)
                # Queried after every wake-up: a notification alone proves nothing. The first time, the launch may have
                # been inserted just before this wait was registered.
                if self._exists(id):
                    return True
                if not self._waiters.wait(id, version, max(0.0, until - time.monotonic())):
                    return False

    def close(self) -> None:
        """End all waits with TooManyWaits, and refuse new ones: they would delay the shutdown of the server."""
        self._waiters.close()

    def _exists(self, id: str) -> bool:
        with self._database.read() as c:
            return bool(launches.known(c, [id]))


def _versions(c: Connection, ids: Sequence[str]) -> dict[str, int]:
    """Return version 1 of every launch that exists: that it exists is the only change that is waited for."""
    return dict.fromkeys(launches.known(c, ids), 1)
