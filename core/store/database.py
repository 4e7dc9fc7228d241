"""One database behind two doors: `read` for looking, `write` for short transactions.

SQLite: one writer thread a process gathers many callers' work into one transaction, under a lock file that is fair
between processes (two bare writers wait up to 0.8 s for each other). PostgreSQL: READ COMMITTED, for every decision is
one UPDATE whose WHERE names what it believes.
"""

import fcntl
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import QueuePool

from errors import StorageFull, StoreUnavailable

__all__ = ["Connection", "Database"]

T = TypeVar("T")
Work = Callable[[Connection], T]
logger = logging.getLogger(__name__)

#: Callers whose work may share one commit; more only make each other wait.
GROUP = 64
RETRIES = 5
#: Seconds that PostgreSQL may take to let us in, where its URL does not say `connect_timeout`.
CONNECTING = 10
#: PostgreSQL: serialization failure, deadlock detected, and a row that somebody else wrote since we looked for it.
_RETRIED = {"40001", "40P01", "23505"}


@dataclass(frozen=True, slots=True)
class _Item:
    work: Work[Any]
    durable: bool
    answer: "Future[Any]" = field(default_factory=Future)


class Database:
    """Opens the database of a URL. ``clock`` replaces the database's own clock in tests."""

    def __init__(self, url: str, *, clock: Callable[[], float] | None = None, readers: int = 32) -> None:
        self.url = url
        self._clock = clock
        self.embedded = url.startswith("sqlite")
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        if self.embedded:
            self._path = Path(url.removeprefix("sqlite:///"))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._reader = _sqlite(url, readers)
            self._writer = _sqlite(url, 1)
            self._now = text("SELECT (julianday('now') - 2440587.5) * 86400.0")
        else:
            address = make_url(url)
            if "connect_timeout" not in address.query:
                address = address.update_query_dict({"connect_timeout": str(CONNECTING)})
            self._reader = self._writer = create_engine(address, pool_size=readers, max_overflow=0, pool_pre_ping=True)
            self._now = text("SELECT extract(epoch FROM clock_timestamp())::float8")

    @property
    def engine(self) -> Engine:
        """For migrations."""
        return self._writer

    def now(self, connection: Connection) -> float:
        """Return the database's clock: seconds since the epoch."""
        return self._clock() if self._clock else float(connection.scalar(self._now) or 0.0)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Lend a connection for looking. Never hold it across a ``yield`` to a client."""
        with self._reader.connect() as connection:
            yield connection

    def write(self, work: Work[T], *, durable: bool = True) -> T:
        """Run ``work`` in a transaction and return its result once committed.

        ``work`` may run more than once, so it touches nothing but the connection. What is not ``durable`` may be
        lost with the power (never with a process): leases and beats.
        """
        if not self.embedded:
            return self._write_through(work)
        item = _Item(work, durable)
        if self._thread is None:
            self._start()
        self._queue.put(item)
        return item.answer.result()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Finish what was handed in and let go of the connections."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        self._reader.dispose()
        self._writer.dispose()

    def _write_through(self, work: Work[T]) -> T:
        for attempt in range(RETRIES):
            try:
                with self._writer.begin() as connection:
                    return work(connection)
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) not in _RETRIED or attempt == RETRIES - 1:
                    raise
            time.sleep(0.01 * 2**attempt)
        raise AssertionError("unreachable")

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="database-writer", daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with self._writer.connect() as connection:
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            while (item := self._queue.get()) is not None:
                group = [item]
                while len(group) < GROUP:
                    try:
                        following = self._queue.get_nowait()
                    except queue.Empty:
                        break
                    if following is None:
                        self._queue.put(None)
                        break
                    group.append(following)
                fcntl.flock(lock, fcntl.LOCK_EX)
                try:
                    self._commit(connection, raw, group)
                finally:
                    fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)

    def _commit(self, connection: Connection, raw: sqlite3.Connection, group: list[_Item]) -> None:
        """Commit a group as one; each piece of work in a savepoint, so that one that fails takes no other along."""
        outcomes: list[tuple[_Item, Any, BaseException | None]] = []
        try:
            raw.execute(f"PRAGMA synchronous={'FULL' if any(item.durable for item in group) else 'NORMAL'}")
            raw.execute("BEGIN IMMEDIATE")
            for item in group:
                raw.execute("SAVEPOINT one")
                try:
                    outcomes.append((item, item.work(connection), None))
                except BaseException as error:
                    if not raw.in_transaction:  # SQLite may end all of it, as where the disk is full
                        raise
                    raw.execute("ROLLBACK TO one")
                    outcomes.append((item, None, error))
                raw.execute("RELEASE one")
            raw.execute("COMMIT")
        except BaseException as error:
            if raw.in_transaction:
                raw.execute("ROLLBACK")
            logger.exception("a group of %d writes was not committed", len(group))
            for item in group:
                item.answer.set_exception(_translated(error))
            return
        for item, result, failure in outcomes:
            if failure is None:
                item.answer.set_result(result)
            else:
                item.answer.set_exception(failure)


def _translated(error: BaseException) -> BaseException:
    cause = error.orig if isinstance(error, OperationalError) else error
    if not isinstance(error, (OperationalError, sqlite3.OperationalError)):
        return error
    return StorageFull() if getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL else StoreUnavailable()


def _sqlite(url: str, size: int) -> Engine:
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=size,
        max_overflow=0,
        connect_args={"check_same_thread": False, "timeout": 30.0, "isolation_level": None},
        isolation_level="AUTOCOMMIT",  # transactions are begun by hand, above
    )

    @event.listens_for(engine, "connect")
    def prepare(raw: sqlite3.Connection, _: object) -> None:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("PRAGMA synchronous=NORMAL")
        raw.execute("PRAGMA wal_autocheckpoint=4000")

    return engine
