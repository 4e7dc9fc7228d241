"""Change notifier: wakes waiting threads when rows change, on published ids and by polling. One per process.

A notifier delivers each published id to one consumer per process, so all waiters of a process share one subscription.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from common.errors import PlatformError, TooManyStreams
from core.notifications.notifier import Notifier
from core.store import simulations
from core.store.comparisons import COMPARISONS
from core.store.database import Connection, Database
from core.store.pipelines import PIPELINES

logger = logging.getLogger(__name__)

#: Returns the versions of those of the rows with these ids that exist.
Versions = Callable[[Connection, Sequence[str]], Mapping[str, int]]
#: Ids per query.
BATCH = 500
#: Stands for all simulations where an id of one is watched; a change of any wakes its waiters at the next poll.
LIST = "list"
#: Seconds between two checks that the caller of a stream may still have it.
RIGHT_INTERVAL = 0.5
#: The check of the caller whose stream this thread sends: it raises a PlatformError once he may not have it any more.
MAY_GO_ON: ContextVar[Callable[[], None] | None] = ContextVar("may_go_on", default=None)


@dataclass(slots=True, eq=False)
class _Watched:
    """A watched id: ``changes`` counts its possible changes, ``version`` is the row's version polled last."""

    changed: threading.Condition
    watchers: int = 0
    changes: int = 0
    version: int | None = None


class Waiters:
    """Threads that wait for changes of rows of one table. ``slots``: their maximum; ``full`` makes the refusal."""

    def __init__(self, versions: Versions, slots: int, full: Callable[[], PlatformError], start: Callable[[], None]):
        self._versions = versions
        self._slots = slots
        self._full = full
        self._start = start
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._open = 0
        self._closed = False

    @property
    def waiting(self) -> int:
        """Number of occupied slots."""
        return self._open

    @contextmanager
    def watching(self, id: str) -> Iterator[None]:
        """Occupy a slot and watch a row; raises the refusal if no slot is free, or after ``close``."""
        with self._lock:
            if self._closed or self._open >= self._slots:
                raise self._full()
            self._open += 1
            watched = self._watched.setdefault(id, _Watched(threading.Condition(self._lock)))
            watched.watchers += 1
        self._start()
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                watched.watchers -= 1
                if not watched.watchers:
                    del self._watched[id]

    def version(self, id: str) -> int:
        """Return a counter of a watched row's possible changes; read it before querying the row, then ``wait``."""
        with self._lock:
            return self._watched[id].changes

    def wait(self, id: str, version: int, timeout: float) -> bool:
        """Block until the counter differs from ``version``, at most ``timeout`` seconds; return whether it does.

        Raise `MAY_GO_ON`'s refusal within RIGHT_INTERVAL seconds after the caller's right has ended.
        """
        check, end = MAY_GO_ON.get(), time.monotonic() + timeout
        while True:
            left = max(0.0, end - time.monotonic())
            with self._lock:
                watched = self._watched[id]
                changed = watched.changed.wait_for(
                    lambda: self._closed or watched.changes != version,  # noqa: B023 - called at once
                    left if check is None else min(left, RIGHT_INTERVAL),
                )
                if self._closed:
                    raise self._full()
            if changed or check is None:
                return changed
            check()
            if time.monotonic() >= end:
                return False

    def close(self) -> None:
        """End all waits with the refusal, and refuse new ones."""
        with self._lock:
            self._closed = True
            for watched in self._watched.values():
                watched.changed.notify_all()

    def wake(self, ids: Sequence[str]) -> None:
        """Wake the waiters of these rows; ids without waiters cost nothing."""
        with self._lock:
            for id in ids:
                if (watched := self._watched.get(id)) is not None:
                    watched.changes += 1
                    watched.changed.notify_all()

    def poll(self, database: Database) -> None:
        """Query the versions of all watched rows; wake the waiters of those that differ."""
        with self._lock:
            ids = list(self._watched)
        for at in range(0, len(ids), BATCH):
            with database.read() as c:
                versions = self._versions(c, ids[at : at + BATCH])
            self.wake([id for id, version in versions.items() if self._is_new(id, version)])

    def _is_new(self, id: str, version: int) -> bool:
        with self._lock:
            watched = self._watched.get(id)
            if watched is None or watched.version == version:
                return False
            watched.version = version
            return True


class ChangeNotifier:
    """Wakes the waiters of a process: one thread receives published ids, one polls every ``interval`` seconds.

    The threads start with the first wait.
    """

    def __init__(self, database: Database, notifier: Notifier, *, interval: float = 0.5) -> None:
        self._database = database
        self._notifier = notifier
        self._interval = interval
        self._lock = threading.Lock()
        self._kinds: list[Waiters] = []
        self._threads: list[threading.Thread] = []

    def waiters(self, versions: Versions, *, slots: int, full: Callable[[], PlatformError]) -> Waiters:
        """Make the waiters of one table."""
        waiters = Waiters(versions, slots, full, self._start)
        with self._lock:
            self._kinds = [*self._kinds, waiters]
        return waiters

    def _start(self) -> None:
        with self._lock:
            if not self._threads:
                for work in (self._subscribe, self._poll):
                    thread = threading.Thread(target=work, name=f"changes{work.__name__}", daemon=True)
                    thread.start()
                    self._threads.append(thread)

    def _subscribe(self) -> None:
        while True:
            ids = self._notifier.published(10.0)
            for waiters in self._kinds:
                waiters.wake(ids)

    def _poll(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(self._interval)
            for waiters in self._kinds:
                try:
                    waiters.poll(self._database)
                except Exception:
                    logger.exception("change notifier: a database query failed; next attempt in %s s", self._interval)


def simulation_waiters(changes: ChangeNotifier, *, slots: int) -> Waiters:
    """Make the waiters of simulations, comparisons and pipelines, for streams: at most ``slots``.

    LIST: all simulations.
    """
    return changes.waiters(_versions, slots=slots, full=lambda: TooManyStreams(retry_after=5))


def _versions(c: Connection, ids: Sequence[str]) -> Mapping[str, int]:
    versions = simulations.versions(c, ids)
    for others in (COMPARISONS, PIPELINES):
        versions |= others.versions(c, [id for id in ids if id not in versions and id != LIST])
    return versions | {LIST: int(simulations.last_change(c) * 1e6)} if LIST in ids else versions
