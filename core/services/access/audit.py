"""Audit log: what requests have done or were refused, written with the act or in batches, read by those it concerns."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from common.errors import StorageFull, StoreUnavailable
from core.domain.access.audit import AuditEntry, AuditFilter
from core.domain.access.audit_buffer import AuditBuffer
from core.domain.access.scopes import Scope
from core.store import audit as store
from core.store.audit import AuditRow
from core.store.database import Database

logger = logging.getLogger(__name__)

#: Seconds between two batches, and most entries of a transaction.
FLUSH_INTERVAL, BATCH = 1.0, 500
#: Entries of a read of the export, and of a transaction of the sweep; most transactions of a sweep.
READ, SWEPT, MOST_SWEEPS = 1000, 1000, 100


class Audit:
    """Service of the audit log. ``retention``: seconds that entries are kept. ``clock``: monotonic, in seconds.

    A thread writes the batches; it starts with the first entry that is observed.
    """

    def __init__(self, database: Database, *, retention: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._retention = retention
        self._clock = clock
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._buffer = AuditBuffer()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def observe(self, entry: AuditEntry) -> None:
        """Take an entry whose act writes nothing itself; it is written within about a second. Without I/O."""
        with self._lock:
            self._buffer.add(entry)
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._write_batches, name="audit", daemon=True)
                self._thread.start()

    def flush(self, *, every: bool = False) -> None:
        """Write the entries that are due; ``every``: also those that would be counted for longer.

        While the database is away they wait.
        """
        with self._flushing:
            with self._lock:
                due = self._buffer.due(self._clock(), every=every)
            for start in range(0, len(due), BATCH):
                try:
                    self._insert(due[start : start + BATCH])
                except (StoreUnavailable, StorageFull):
                    with self._lock:
                        for entry, times in due[start:]:
                            self._buffer.add(entry, times)
                    return

    def close(self) -> None:
        """Write what waits, and end the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self.flush(every=True)

    def page(
        self, scope: Scope, asked: AuditFilter, *, after: str | None, limit: int
    ) -> tuple[Sequence[AuditRow], str | None]:
        """Write what waits in this process; return entries of a scope, newest first, and the next cursor."""
        self.flush()
        with self._database.read() as c:
            rows = store.page(c, scope, asked, after=after, limit=limit + 1)
        return rows[:limit], rows[limit - 1].shown_id if len(rows) > limit else None

    def export(self, scope: Scope, asked: AuditFilter) -> Iterator[Sequence[AuditRow]]:
        """Yield all entries of a scope, newest first."""
        after = None
        while True:
            rows, after = self.page(scope, asked, after=after, limit=READ)
            yield rows
            if after is None:
                return

    def sweep(self) -> int:
        """Delete entries that are too old, in transactions of bounded size; return how many."""
        with self._database.read() as c:
            before = self._database.now(c) - self._retention
        total = 0
        for _ in range(MOST_SWEEPS):
            deleted = self._database.write(lambda c: store.forget(c, before, SWEPT))
            total += deleted
            if deleted < SWEPT:
                break
        return total

    def _insert(self, batch: Sequence[tuple[AuditEntry, int]]) -> None:
        # Not durable, and so not recorded itself: a batch that a power cut loses is one that was not written yet.
        self._database.write(lambda c: store.add(c, batch, self._database.now(c)), durable=False)

    def _write_batches(self) -> None:
        while not self._ended.wait(FLUSH_INTERVAL):
            try:
                self.flush()
            except Exception:
                logger.exception("audit log: a batch was not written")
