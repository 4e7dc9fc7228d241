"""Connections to PostgreSQL: one round trip for a statement that reads, and none that a server has ended is used."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import event, text

from core.domain.access.scopes import LOCAL_CALLER
from core.store import leaders
from core.store import postgres as store
from core.store.database import Connection, Database
from tests.api.answers import MODEL
from tests.contracts.test_dispatcher import dispatcher_rig
from tests.databases import postgres_url


@pytest.fixture
def connected(postgres: str, request: pytest.FixtureRequest) -> Iterator[Database]:
    database = Database(postgres_url(postgres, request.node.nodeid), readers=1)
    yield database
    database.close()


def pid_of(c: Connection) -> int:
    return int(c.scalar(text("SELECT pg_backend_pid()")) or 0)


def read(database: Database) -> int:
    with database.read() as c:
        return pid_of(c)


def end(postgres: str, pid: int) -> None:
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])


def test_a_statement_that_reads_stays_prepared_and_is_sent_alone(connected: Database) -> None:
    for _ in range(10):
        read(connected)
    with connected.read() as c:
        raw = c.connection.driver_connection
        assert isinstance(raw, psycopg.Connection)
        assert raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        prepared = list(c.scalars(text("SELECT statement FROM pg_prepared_statements")))
        assert raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE, "no transaction has begun"
    assert prepared == ["SELECT pg_backend_pid()"]


def test_what_is_written_is_one_transaction_though_reads_have_none(connected: Database) -> None:
    read(connected)

    def fail(c: Connection) -> None:
        assert leaders.take(c, "dispatch", "a", 1.0, 1.0) == 1 and leaders.holds(c, "dispatch", 1)
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError):
        connected.write(fail)
    with connected.read() as c:
        assert not leaders.holds(c, "dispatch", 1)


def test_a_connection_that_the_server_has_ended_is_replaced_before_its_use(connected: Database, postgres: str) -> None:
    first = read(connected)
    assert read(connected) == first
    end(postgres, first)
    second = read(connected)
    assert second != first
    end(postgres, second)
    assert connected.write(pid_of) not in (first, second)


def test_a_connection_that_was_unused_for_long_is_asked_first(
    connected: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    event.listen(connected.engine, "checkout", lambda raw, *_: asked.append(raw.info.transaction_status.name))
    first = read(connected)
    monkeypatch.setattr(store, "IDLE_INTERVAL", 0.0)
    executed: list[str] = []
    execute = psycopg.Cursor.execute

    def record(cursor: psycopg.Cursor, query: str, *arguments: object, **options: object) -> object:
        executed.append(query)
        return execute(cursor, query, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(psycopg.Cursor, "execute", record)
    assert read(connected) == first
    assert executed[1:] == ["SELECT pg_backend_pid()"] and "pg_backend_pid" not in executed[0]
    assert connected.write(pid_of) == first
    assert set(asked) == {"IDLE"}, "no transaction is left by the question"


def test_what_may_be_long_is_read_in_parts(postgres: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    database = Database(postgres_url(postgres, request.node.nodeid))
    with dispatcher_rig(tmp_path, database) as rig:
        rig.platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
        rig.submit()
        assert [dataset.name for dataset in rig.platform.catalogue.datasets.in_use()] == ["noop"]
