"""Launch waiters: requests of warm runners block until their launch exists; one query serves a whole process."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from core.notifications.notifier import Notifier
from core.store import launches
from core.store.database import Database
from errors import TooManyWaits

logger = logging.getLogger(__name__)

#: Maximum of waiting requests per process; each occupies a server thread, and other requests need threads too.
SLOTS = 64
#: Seconds between two polls, in case a wake-up is lost.
INTERVAL = 1.0
#: `Retry-After` in seconds of a request that finds no free slot.
PAUSE = 2


class LaunchWaiters:
    """Wakes requests once the launch that they wait for exists. Its threads start with the first wait."""

    def __init__(
        self, database: Database, notifier: Notifier, *, slots: int = SLOTS, interval: float = INTERVAL
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._slots = slots
        self._interval = interval
        self._closed = False
        self._changed = threading.Condition()
        self._waiting: dict[str, int] = {}
        self._arrived: set[str] = set()
        self._threads: list[threading.Thread] = []

    @property
    def waiting(self) -> int:
        """Number of waiting requests in this process."""
        with self._changed:
            return sum(self._waiting.values())

    def wait(self, id: str, timeout: float) -> bool:
        """Block until a launch with this id exists, at most ``timeout`` seconds; return whether it does."""
        with self._database.read() as c:
            if launches.known(c, [id]):
                return True
        with self._slot(id):
            self._query([id])  # it may have been inserted just before this wait was registered
            with self._changed:
                self._changed.wait_for(lambda: id in self._arrived or self._closed, timeout)
                if self._closed:
                    raise TooManyWaits(retry_after=PAUSE)
                return id in self._arrived

    def close(self) -> None:
        """End all waits with TooManyWaits, and refuse new ones: they would delay the shutdown of the server."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @contextmanager
    def _slot(self, id: str) -> Iterator[None]:
        with self._changed:
            if self._closed or sum(self._waiting.values()) >= self._slots:
                raise TooManyWaits(retry_after=PAUSE)
            self._waiting[id] = self._waiting.get(id, 0) + 1
            self._start_threads()
        try:
            yield
        finally:
            with self._changed:
                self._waiting[id] -= 1
                if not self._waiting[id]:
                    del self._waiting[id]
                    self._arrived.discard(id)

    def _start_threads(self) -> None:
        if not self._threads:
            for work in (self._subscribe, self._poll):
                thread = threading.Thread(target=work, name=f"arrivals{work.__name__}", daemon=True)
                thread.start()
                self._threads.append(thread)

    def _subscribe(self) -> None:
        """Query the database for published ids: a notification alone proves nothing."""
        while True:
            published = self._notifier.published(10.0)
            with self._changed:
                ids = [id for id in published if id in self._waiting]
            self._try_query(ids)

    def _poll(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(self._interval)
            with self._changed:
                ids = list(self._waiting)
            self._try_query(ids)

    def _try_query(self, ids: list[str]) -> None:
        try:
            self._query(ids)
        except Exception:
            logger.exception("launch waiters: the database query failed; next attempt in %s s", self._interval)

    def _query(self, ids: list[str]) -> None:
        if not ids:
            return
        with self._database.read() as c:
            existing = launches.known(c, ids)
        if existing:
            with self._changed:
                self._arrived |= existing & self._waiting.keys()
                self._changed.notify_all()
