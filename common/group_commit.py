"""Group commit for SQLite: the transactions of many threads run one after another in one commit, by one writer thread.

A commit costs SQLite milliseconds where it waits for the disk, whatever the number of statements. So callers that
wait at the same time share a commit, each in a savepoint of its own: a transaction that fails undoes its own changes
only. A lock file makes the order fair between processes: without it, two of them that write without a pause wait up to
0.8 s for each other, because SQLite's busy handler polls.
"""

import fcntl
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

C = TypeVar("C")
T = TypeVar("T")
#: Transactions that may share one commit; with more, each waits mainly for the others.
GROUP_SIZE = 64
#: SQLite's error codes for a corrupt file: the disk flipped or lost some of it.
_CORRUPTION_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def is_corruption(error: BaseException) -> bool:
    """Tell whether an error, or the error that it wraps, means that the file is corrupt; not busy, not a full disk."""
    code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _CORRUPTION_CODES


@dataclass(frozen=True, slots=True)
class _Transaction:
    step: Callable[[Any], Any]
    durable: bool
    result: "Future[Any]" = field(default_factory=Future)


class GroupCommit(Generic[C]):
    """Writer thread of one process for one SQLite file; it starts with the first transaction.

    ``connect`` opens its connection, as the type that steps receive and as sqlite3's connection below it, usable from
    any thread and in autocommit mode. ``path`` is the database's; the lock file is beside it. ``translate`` receives
    the error of a commit that failed, and the number of its transactions, and returns the error for their callers.
    """

    def __init__(
        self,
        path: Path,
        connect: Callable[[], AbstractContextManager[tuple[C, sqlite3.Connection]]],
        translate: Callable[[BaseException, int], BaseException],
    ) -> None:
        self._path, self._connect, self._translate = path, connect, translate
        self._queue: queue.SimpleQueue[_Transaction | None] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def run(self, step: Callable[[C], T], *, durable: bool) -> T:
        """Run a step in a transaction, and return its result once it is committed.

        A step only uses its connection. A commit without a durable transaction does not wait for the disk: a power cut
        may undo it, the death of a process never does.
        """
        transaction = _Transaction(step, durable)
        with self._starting:
            if self._thread is None:
                self._start()
            self._queue.put(transaction)
        return transaction.result.result()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Commit the waiting transactions, and close the connection. A later transaction opens another."""
        with self._starting:
            if self._thread is not None:
                self._queue.put(None)
                self._thread.join()
                self._thread = None

    def _start(self) -> None:
        """Open connection and lock file on the caller's thread, so that the caller gets the error if that fails."""
        opened = ExitStack()
        try:
            connection, raw = opened.enter_context(self._connect())
            lock = opened.enter_context(open(f"{self._path}.lock", "w"))
        except Exception as error:
            opened.close()
            raise self._translate(error, 1) from error
        self._thread = threading.Thread(
            target=self._serve, args=(opened, connection, raw, lock), name="group-commit", daemon=True
        )
        self._thread.start()

    def _serve(self, opened: ExitStack, connection: C, raw: sqlite3.Connection, lock: IO[str]) -> None:
        with opened:
            while group := self._next_group():
                fcntl.flock(lock, fcntl.LOCK_EX)
                try:
                    outcomes = self._commit(connection, raw, group)
                finally:
                    fcntl.flock(lock, fcntl.LOCK_UN)
                for transaction, result, error in outcomes:
                    if error is None:
                        transaction.result.set_result(result)
                    else:
                        transaction.result.set_exception(error)

    def _next_group(self) -> list[_Transaction]:
        """Wait for a transaction; return it with those that came meanwhile, or an empty group at the end."""
        group: list[_Transaction] = []
        while len(group) < GROUP_SIZE and not (group and self._queue.empty()):
            transaction = self._queue.get()
            if transaction is None:
                if group:
                    self._queue.put(None)
                break
            group.append(transaction)
        return group

    def _commit(
        self, connection: C, raw: sqlite3.Connection, group: list[_Transaction]
    ) -> list[tuple[_Transaction, Any, BaseException | None]]:
        outcomes: list[tuple[_Transaction, Any, BaseException | None]] = []
        try:
            raw.execute(f"pragma synchronous={'full' if any(each.durable for each in group) else 'normal'}")
            raw.execute("begin immediate")
            for transaction in group:
                raw.execute("savepoint step")
                try:
                    outcomes.append((transaction, transaction.step(connection), None))
                except BaseException as error:
                    # On a full disk SQLite has rolled back everything; on a corrupt file nothing else may be committed.
                    if not raw.in_transaction or is_corruption(error):
                        raise
                    raw.execute("rollback to step")
                    outcomes.append((transaction, None, error))
                raw.execute("release step")
            raw.execute("commit")
        except BaseException as error:
            with suppress(sqlite3.Error):
                if raw.in_transaction:
                    raw.execute("rollback")
            translated = self._translate(error, len(group))
            return [(transaction, None, translated) for transaction in group]
        return outcomes
