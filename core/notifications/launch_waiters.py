"""Runners that wait for their launch to be written down: they sleep here, and one look serves all of a process."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from core.notifications.notifier import Notifier
from core.store import launches
from core.store.database import Database
from errors import TooManyWaits

logger = logging.getLogger(__name__)

#: Waits at once in one process; each holds a thread of its server, and those at work want one, too.
SLOTS = 64
#: Seconds between two looks by the clock, should the notifier not ring.
INTERVAL = 1.0
#: Seconds after which one more may ask again.
PAUSE = 2


class LaunchWaiters:
    """Wakes whoever waits for a launch once there is one of that id. No thread runs before somebody waits."""

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
        """Waits in progress in this process."""
        with self._changed:
            return sum(self._waiting.values())

    def wait(self, id: str, timeout: float) -> bool:
        """Block until a launch of this id is written down, at most so many seconds; tell whether one is."""
        with self._database.read() as c:
            if launches.known(c, [id]):
                return True
        with self._place(id):
            self._look([id])  # it may have come just before we were to be woken
            with self._changed:
                self._changed.wait_for(lambda: id in self._arrived or self._closed, timeout)
                if self._closed:
                    raise TooManyWaits(retry_after=PAUSE)
                return id in self._arrived

    def close(self) -> None:
        """Let nobody wait any more: they hold up the end of a server that waits for its answers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @contextmanager
    def _place(self, id: str) -> Iterator[None]:
        with self._changed:
            if self._closed or sum(self._waiting.values()) >= self._slots:
                raise TooManyWaits(retry_after=PAUSE)
            self._waiting[id] = self._waiting.get(id, 0) + 1
            self._begin()
        try:
            yield
        finally:
            with self._changed:
                self._waiting[id] -= 1
                if not self._waiting[id]:
                    del self._waiting[id]
                    self._arrived.discard(id)

    def _begin(self) -> None:
        if not self._threads:
            for work in (self._hear, self._watch):
                thread = threading.Thread(target=work, name=f"arrivals{work.__name__}", daemon=True)
                thread.start()
                self._threads.append(thread)

    def _hear(self) -> None:
        """A notifier that rings for one of ours is believed only as far as looking."""
        while True:
            heard = self._notifier.published(10.0)
            with self._changed:
                ours = [id for id in heard if id in self._waiting]
            self._try(ours)

    def _watch(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(self._interval)
            with self._changed:
                ours = list(self._waiting)
            self._try(ours)

    def _try(self, ids: list[str]) -> None:
        try:
            self._look(ids)
        except Exception:
            logger.exception("who waits for a launch could not be looked after; next try in %s s", self._interval)

    def _look(self, ids: list[str]) -> None:
        if not ids:
            return
        with self._database.read() as c:
            found = launches.known(c, ids)
        if found:
            with self._changed:
                self._arrived |= found & self._waiting.keys()
                self._changed.notify_all()
