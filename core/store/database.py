"""Database: `read` for queries, `write` for short transactions, on SQLite or PostgreSQL.

SQLite: group commit, by one writer thread per process. PostgreSQL: READ COMMITTED, because every decision is one UPDATE
whose WHERE clause repeats what it relies on.
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import QueuePool

from errors import StorageFull, StoreUnavailable
from group_commit import GroupCommit

__all__ = ["Connection", "Database"]

T = TypeVar("T")
Work = Callable[[Connection], T]
logger = logging.getLogger(__name__)

RETRIES = 5
#: Seconds for connecting to PostgreSQL, if its URL has no `connect_timeout`.
CONNECTING = 10
#: PostgreSQL: serialization failure, deadlock detected, and a row that another transaction inserted meanwhile.
_RETRIED = {"40001", "40P01", "23505"}


class Database:
    """The database of a URL. ``clock`` replaces the database's own clock in tests."""

    def __init__(self, url: str, *, clock: Callable[[], float] | None = None, readers: int = 32) -> None:
        self.url = url
        self._clock = clock
        self.embedded = url.startswith("sqlite")
        if self.embedded:
            path = Path(url.removeprefix("sqlite:///"))
            path.parent.mkdir(parents=True, exist_ok=True)
            self._commits = GroupCommit(path, self._connect_writer, _translate)
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
        """Lend a connection for queries. Never hold it across a ``yield`` to a client."""
        with self._reader.connect() as connection:
            yield connection

    def write(self, work: Work[T], *, durable: bool = True) -> T:
        """Run ``work`` in a transaction and return its result once committed.

        ``work`` may run more than once, so it only uses its connection. A transaction that is not ``durable`` may be
        lost in a power cut (never by the death of a process): leases and heartbeats.
        """
        if not self.embedded:
            return self._write_through(work)
        return self._commits.run(work, durable=durable)

    def close(self) -> None:
        """Commit the waiting transactions, and close the connections."""
        if self.embedded:
            self._commits.close()
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

    @contextmanager
    def _connect_writer(self) -> Iterator[tuple[Connection, sqlite3.Connection]]:
        with self._writer.connect() as connection:
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            yield connection, raw


def _translate(error: BaseException, transactions: int) -> BaseException:
    """Log why a group of transactions was not committed, and return the platform's error for it."""
    logger.error("database: a group of %d transactions was not committed", transactions, exc_info=error)
    if not isinstance(error, (OperationalError, sqlite3.OperationalError)):
        return error
    cause = error.orig if isinstance(error, OperationalError) else error
    return StorageFull() if getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL else StoreUnavailable()


def _sqlite(url: str, size: int) -> Engine:
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=size,
        max_overflow=0,
        connect_args={"check_same_thread": False, "timeout": 30.0, "isolation_level": None},
        isolation_level="AUTOCOMMIT",  # group_commit.py begins and commits
    )

    @event.listens_for(engine, "connect")
    def prepare(raw: sqlite3.Connection, _: object) -> None:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("PRAGMA synchronous=NORMAL")
        raw.execute("PRAGMA wal_autocheckpoint=4000")

    return engine
