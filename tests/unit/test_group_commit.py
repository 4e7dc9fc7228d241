"""Group commit: transactions that wait at the same time share a commit, and a failed transaction undoes only itself."""

import fcntl
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from common.group_commit import GROUP_SIZE, GroupCommit, is_corruption
from tests.waiting import TIMEOUT, until

Step = Callable[[sqlite3.Connection], str]


class Log:
    """A database with a single table, and the errors of commits that failed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.db"
        self.statements: list[str] = []
        self.failures: list[tuple[str, int]] = []
        with closing(self._open()) as connection:
            connection.execute("create table if not exists lines(line text unique not null)")
        self.commits = GroupCommit(self.path, self._connect, self._translate)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)

    @contextmanager
    def _connect(self) -> Iterator[tuple[sqlite3.Connection, sqlite3.Connection]]:
        with closing(self._open()) as connection:
            connection.set_trace_callback(self.statements.append)
            yield connection, connection

    def _translate(self, error: BaseException, transactions: int) -> BaseException:
        self.failures.append((str(error), transactions))
        return OSError(f"not committed: {error}")

    def add(self, line: str, *, durable: bool = True) -> str:
        return self.commits.run(adding(line), durable=durable)

    def lines(self) -> list[str]:
        with closing(self._open()) as connection:
            return [line for (line,) in connection.execute("select line from lines order by rowid")]

    def run_together(self, steps: Mapping[str, Step]) -> dict[str, BaseException | None]:
        """Run each step in its own thread, all of them while another transaction runs; return their errors."""
        outcomes: dict[str, BaseException | None] = {}
        running, resumed = threading.Event(), threading.Event()

        def wait(connection: sqlite3.Connection) -> str:
            running.set()
            assert resumed.wait(TIMEOUT)
            return ""

        def run(name: str, step: Step) -> None:
            try:
                self.commits.run(step, durable=True)
                outcomes[name] = None
            except Exception as error:
                outcomes[name] = error

        threads = [threading.Thread(target=run, args=arguments) for arguments in (("", wait), *steps.items())]
        threads[0].start()
        assert running.wait(TIMEOUT)
        for thread in threads[1:]:
            thread.start()
        until(lambda: self.commits._queue.qsize() == len(steps))
        resumed.set()
        for thread in threads:
            thread.join()
        assert outcomes.pop("") is None
        return outcomes


def adding(line: str) -> Step:
    """Return a step that inserts a line, and returns it in capitals."""

    def step(connection: sqlite3.Connection) -> str:
        connection.execute("insert into lines values(?)", (line,))
        return line.upper()

    return step


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path)
    yield log
    log.commits.close()


def test_a_step_returns_its_result_after_the_commit(log: Log) -> None:
    assert log.add("a") == "A" and log.lines() == ["a"]


def test_transactions_that_wait_together_share_a_commit(log: Log) -> None:
    lines = [str(number) for number in range(GROUP_SIZE + 5)]
    assert log.run_together({line: adding(line) for line in lines}) == dict.fromkeys(lines)
    assert sorted(log.lines()) == sorted(lines)
    # A commit for the first transaction, for a full group and for the remaining transactions.
    assert log.statements.count("commit") == 3


def test_a_transaction_that_fails_undoes_only_its_own_changes(log: Log) -> None:
    def step(connection: sqlite3.Connection) -> None:
        connection.execute("insert into lines values('undone')")
        raise KeyError("on purpose")

    log.add("taken")
    outcomes = log.run_together({line: adding(line) for line in ("first", "taken", "last")})
    assert isinstance(outcomes["taken"], sqlite3.IntegrityError)
    with pytest.raises(KeyError):
        log.commits.run(step, durable=True)
    assert sorted(log.lines()) == ["first", "last", "taken"] and not log.failures


def test_an_error_that_ends_the_transaction_fails_all_transactions_of_its_group(log: Log) -> None:
    def full(connection: sqlite3.Connection) -> str:
        connection.execute("rollback")  # SQLite rolls back when it cannot undo the statement alone
        raise sqlite3.OperationalError("database or disk is full")

    outcomes = log.run_together({"beside": adding("beside"), "full": full})
    assert {str(error) for error in outcomes.values()} == {"not committed: database or disk is full"}
    assert log.lines() == []
    assert log.failures == [("database or disk is full", 2)]
    assert log.add("after") == "AFTER"


def test_no_transaction_of_the_group_is_committed_after_a_corrupt_page(log: Log) -> None:
    def corrupt(connection: sqlite3.Connection) -> None:
        connection.execute("insert into lines values('beside')")
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT_INDEX
        raise error

    with pytest.raises(OSError, match="malformed"):
        log.commits.run(corrupt, durable=True)
    assert log.lines() == [] and log.failures == [("database disk image is malformed", 1)]


@pytest.mark.parametrize(("durable", "mode"), [(True, "full"), (False, "normal")])
def test_only_a_durable_transaction_waits_for_the_disk(log: Log, durable: bool, mode: str) -> None:
    log.add("line", durable=durable)
    assert f"pragma synchronous={mode}" in log.statements


def test_a_file_that_cannot_be_opened_is_an_error_of_the_caller(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.path.rename(tmp_path / "away")
    log.path.mkdir()
    with pytest.raises(OSError, match="unable to open"):
        log.add("a")
    log.path.rmdir()
    (tmp_path / "away").rename(log.path)
    assert log.add("a") == "A"
    log.commits.close()


def test_processes_take_turns_by_the_lock_file(log: Log) -> None:
    log.add("a")
    with open(f"{log.path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        thread = threading.Thread(target=log.add, args=("b",))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive() and log.lines() == ["a"]
    thread.join()
    assert log.lines() == ["a", "b"]


def test_closing_commits_waiting_transactions_and_a_later_transaction_reopens_the_database(log: Log) -> None:
    log.add("a")
    log.commits.close()
    assert log.add("b") == "B" and log.lines() == ["a", "b"]


@pytest.mark.parametrize(
    ("code", "corrupt"),
    [(sqlite3.SQLITE_CORRUPT_VTAB, True), (sqlite3.SQLITE_NOTADB, True), (sqlite3.SQLITE_FULL, False)],
)
def test_corruption_is_detected_by_its_extended_code_and_in_a_wrapping_error(code: int, corrupt: bool) -> None:
    error = sqlite3.DatabaseError()
    error.sqlite_errorcode = code
    wrapping = RuntimeError()
    wrapping.orig = error  # type: ignore[attr-defined]
    assert is_corruption(error) is corrupt and is_corruption(wrapping) is corrupt
    assert not is_corruption(ValueError())
