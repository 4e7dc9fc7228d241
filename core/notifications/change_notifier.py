"""Change notifier: one watcher per process wakes its streams, on published changes and by polling the database."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from core.notifications.notifier import Notifier
from core.store import simulations
from core.store.database import Database
from errors import TooManyStreams

logger = logging.getLogger(__name__)


class ChangeNotifier:
    """Wakes streams that wait on a condition; no stream polls itself. ``slots``: maximum of open streams."""

    def __init__(self, database: Database, notifier: Notifier, *, slots: int = 1000, interval: float = 0.5) -> None:
        self._database = database
        self._notifier = notifier
        self._interval = interval
        self._changed = threading.Condition()
        self._versions: dict[str, int] = {}
        self._watchers: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._slots = slots
        self._open = 0
        self._threads: list[threading.Thread] = []

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return self._open

    @contextmanager
    def watching(self, id: str) -> Iterator[None]:
        """Hold a slot while a stream is open; raises TooManyStreams if none is free."""
        with self._changed:
            if self._open >= self._slots:
                raise TooManyStreams(retry_after=5)
            self._open += 1
            self._watchers[id] = self._watchers.get(id, 0) + 1
            self._start()
        try:
            yield
        finally:
            with self._changed:
                self._open -= 1
                self._watchers[id] -= 1
                if not self._watchers[id]:
                    for table in (self._watchers, self._versions, self._seen):
                        table.pop(id, None)

    def version(self, id: str) -> int:
        """Return a counter that grows with every possible change; read it before querying, then ``wait``."""
        with self._changed:
            return self._versions.get(id, 0)

    def wait(self, id: str, version: int, timeout: float) -> bool:
        """Block until the counter differs from ``version``, at most ``timeout`` seconds; return whether it does."""
        with self._changed:
            return self._changed.wait_for(lambda: self._versions.get(id, 0) != version, timeout)

    def _start(self) -> None:
        if not self._threads:
            for work in (self._subscribe, self._poll):
                thread = threading.Thread(target=work, name=f"changes{work.__name__}", daemon=True)
                thread.start()
                self._threads.append(thread)

    def _wake(self, ids: set[str]) -> None:
        with self._changed:
            for id in ids & self._watchers.keys():
                self._versions[id] = self._versions.get(id, 0) + 1
            self._changed.notify_all()

    def _subscribe(self) -> None:
        while True:
            self._wake(set(self._notifier.published(10.0)))

    def _poll(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(self._interval)
            with self._changed:
                watched = list(self._watchers)
            try:
                for at in range(0, len(watched), 500):
                    with self._database.read() as c:
                        versions = simulations.versions(c, watched[at : at + 500])
                    changed = {id for id, seq in versions.items() if self._seen.get(id) != seq}
                    self._seen.update(versions)
                    if changed:
                        self._wake(changed)
            except Exception:
                logger.exception("change notifier: polling the database failed; next attempt in %s s", self._interval)
