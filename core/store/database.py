"""Database: `read` for queries, `write` for short transactions, on SQLite or PostgreSQL.

SQLite: group commit, by one writer thread per process. PostgreSQL: READ COMMITTED, because every decision is one UPDATE
whose WHERE clause repeats what it relies on (core/store/postgres.py).
"""

import fcntl
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, select, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool

from common.errors import StorageFull, StoreUnavailable
from common.full_disks import is_disk_full
from common.group_commit import GroupCommit
from core.store.database_clock import DatabaseClock
from core.store.postgres import engine_for_reads, postgres_engine
from core.store.recording import CURRENT_RECORDING

__all__ = ["Connection", "Database", "lock"]

T = TypeVar("T")
Work = Callable[[Connection], T]
logger = logging.getLogger(__name__)

RETRIES = 5
_CURRENT_TIME = select(DatabaseClock())
#: PostgreSQL: serialization failure, deadlock detected, and a row that another transaction inserted meanwhile.
_RETRIED = {"40001", "40P01", "23505"}


class Database:
    """The database of a URL. ``clock`` replaces the database's own clock in tests."""

    def __init__(self, url: str, *, clock: Callable[[], float] | None = None, readers: int = 32) -> None:
        self.url = url
        self._clock = clock
        self._names_lock = threading.Lock()
        self._exclusive: dict[str, threading.Lock] = {}
        self._closed = False
        self.embedded = url.startswith("sqlite")
        if self.embedded:
            path = Path(url.removeprefix("sqlite:///"))
            path.parent.mkdir(parents=True, exist_ok=True)
            self._path = path
            self._commits = GroupCommit(path, self._connect_writer, _translate)
            self._reader = _sqlite(url, readers)
            self._writer = _sqlite(url, 1)
        else:
            self._writer = postgres_engine(url, readers)
            self._reader = engine_for_reads(self._writer)
            event.listen(self._writer, "checkin", self._on_return)

    @property
    def engine(self) -> Engine:
        """For migrations."""
        return self._writer

    def now(self, connection: Connection) -> float:
        """Return the database's clock: seconds since the epoch."""
        return self._clock() if self._clock else float(connection.scalar(_CURRENT_TIME) or 0.0)

    @property
    def replaced_now(self) -> float | None:
        """The time of the clock that replaces the database's, for a query that reads that besides; None: none does."""
        return self._clock() if self._clock else None

    def size(self, connection: Connection) -> int:
        """Return the bytes of the database on its disk; of an embedded one with its log of recent transactions."""
        if not self.embedded:
            return int(connection.scalar(text("SELECT pg_database_size(current_database())")) or 0)
        files = (self._path, self._path.with_name(f"{self._path.name}-wal"))
        return sum(path.stat().st_size for path in files if path.exists())

    @contextmanager
    def read(self, *, in_parts: bool = False) -> Iterator[Connection]:
        """Lend a connection for queries. Never hold it across a ``yield`` to a client.

        ``in_parts``: a query may be read in parts (`yield_per`): a cursor of PostgreSQL needs a transaction.
        """
        engine = self._writer if in_parts and not self.embedded else self._reader
        with _outages(), engine.connect() as connection:
            yield connection

    def write(self, work: Work[T], *, durable: bool = True) -> T:
        """Run ``work`` in a transaction and return its result once committed.

        ``work`` may run more than once, so it only uses its connection. A transaction that is not ``durable`` may be
        lost in a power cut (never by the death of a process): leases and heartbeats. A transaction of a request that is
        recorded inserts its audit entries too.
        """
        if (recording := CURRENT_RECORDING.get()) is None:
            return self._commit(work, durable=durable)
        result = self._commit(recording.around(work, self.now, durable=durable), durable=durable)
        recording.note_commit()
        return result

    def _commit(self, work: Work[T], *, durable: bool) -> T:
        if not self.embedded:
            with _outages():
                return self._write_through(work)
        return self._commits.run(work, durable=durable)

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """Hold a lock among all processes that use this database; the death of its holder releases it.

        For steps that SQL and the object store take together. SQLite: a lock file beside the database; PostgreSQL: an
        advisory lock, whose transaction stays open meanwhile. Reentering waits for ever.
        """
        with self._names_lock:
            own = self._exclusive.setdefault(name, threading.Lock())
        with own:  # at most one connection of this process waits for the lock
            if self.embedded:
                with open(f"{self._path}.{name}.lock", "w") as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    yield
            else:
                with _outages(), self._writer.begin() as connection:
                    lock(connection, name)
                    yield

    def close(self) -> None:
        """Commit the waiting transactions, and close the connections, those in use once they are returned."""
        self._closed = True
        if self.embedded:
            self._commits.close()
        self._reader.dispose()
        self._writer.dispose()

    def _on_return(self, connection: DBAPIConnection | None, record: object) -> None:
        """Close a connection that is returned after the end: a pool that was disposed of would keep it open."""
        if self._closed and connection is not None:
            connection.close()

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


def lock(c: Connection, name: str, *, shared: bool = False) -> None:
    """Wait for a lock of PostgreSQL that the transaction holds to its end; SQLite has one writer, so it needs none.

    For decisions that depend on the absence of rows, which no row lock protects under READ COMMITTED.
    """
    if c.dialect.name != "sqlite":
        c.execute(_LOCK_SHARED if shared else _LOCK, {"name": name})


_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")
_LOCK_SHARED = text("SELECT pg_advisory_xact_lock_shared(hashtextextended(:name, 0))")


@contextmanager
def _outages() -> Iterator[None]:
    """Raise the platform's error for errors of the database that no query has caused."""
    try:
        yield
    except (DBAPIError, sqlite3.Error, PoolTimeout) as error:
        outage = outage_of(error)
        if outage is None:
            raise
        logger.warning("database: unavailable: %s", " ".join(str(getattr(error, "orig", error)).split()))
        raise outage from error


def outage_of(error: BaseException) -> StoreUnavailable | None:
    """Return the platform's error for a database that is away, locked or full; None if the error is another."""
    cause = getattr(error, "orig", error)
    if is_disk_full(cause):
        return StorageFull()
    if (code := getattr(cause, "sqlite_errorcode", None)) is not None:
        return StoreUnavailable(_AWAY) if code & 0xFF in _SQLITE_OUTAGES else None
    state = getattr(cause, "sqlstate", None)
    if state == _DISK_FULL:
        return StorageFull()
    if state is None:  # no answer of the server: the connection failed
        away = isinstance(error, PoolTimeout) or getattr(error, "connection_invalidated", False)
        away = away or isinstance(error, OperationalError)
    else:
        away = state.startswith(_POSTGRES_OUTAGES)
    return StoreUnavailable(_AWAY) if away else None


_AWAY = "The database does not answer. Nothing was lost; try again shortly."
#: SQLite's primary result codes for a file that is locked, or that the disk does not give.
_SQLITE_OUTAGES = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
    }
)
#: PostgreSQL's error codes (appendix A of its manual): connection, resources, operator, system; a lock that is not
#: available; a server that is read-only because it is not the primary any more; conflicts after all retries.
_POSTGRES_OUTAGES = ("08", "53", "57", "58", "55P03", "25006", "40")
_DISK_FULL = "53100"


def _translate(error: BaseException, transactions: int) -> BaseException:
    """Log why a group of transactions was not committed, and return the platform's error for it."""
    logger.error("database: a group of %d transactions was not committed", transactions, exc_info=error)
    return outage_of(error) or error


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
