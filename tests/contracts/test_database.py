"""Contract of the database, on each engine."""

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from common.errors import Conflict, IllegalTransition, StorageFull, StoreUnavailable, UnknownSimulation
from core.domain.access.scopes import PLATFORM
from core.domain.scheduling.states import State
from core.domain.submissions.listing import Listing
from core.store import events, leaders, listing, simulations
from core.store.database import Connection, Database
from core.store.migrate import migrate
from core.store.tables import metadata
from tests.databases import postgres_url, sqlite_database

ROW = {
    "id": "s1",
    "project": "default",
    "state": "queued",
    "spec": "{}",
    "provenance": "{}",
    "dataset": "noop",
    "runtime": "python",
    "model": "zero",
    "digest": "d",
    "created_at": 0.0,
}


@pytest.fixture
def queued(database: Database) -> Database:
    stage = {"id": "s1.0", "simulation_id": "s1", "ordinal": 0, "total": 1, "state": "open"}
    database.write(lambda c: simulations.add(c, ROW, stage))
    return database


def test_the_migrations_create_exactly_the_tables_of_the_code(database: Database) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_failed_write_does_not_fail_other_writes(queued: Database) -> None:
    def fail(c: Connection) -> None:
        c.execute(text("UPDATE simulations SET model='wrong'"))
        raise RuntimeError("on purpose")

    outcomes: list[str] = []

    def attempt(work: Callable[[Connection], Any]) -> None:
        try:
            queued.write(work)
            outcomes.append("done")
        except RuntimeError:
            outcomes.append("failed")

    writes = [fail, lambda c: events.say(c, "s1", "note", {}, 1.0)] * 10
    threads = [threading.Thread(target=attempt, args=(work,)) for work in writes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with queued.read() as c:
        assert simulations.find(c, PLATFORM, "s1").model == "zero"
        assert [row.seq for row in events.read_after(c, "s1", 0)] == list(range(1, 12))
    assert sorted(outcomes) == ["done"] * 10 + ["failed"] * 10


def test_one_of_two_concurrent_transitions_succeeds_and_one_event_is_written(queued: Database) -> None:
    outcomes: list[str] = []

    def attempt() -> None:
        try:
            queued.write(lambda c: simulations.move(c, "s1", State.QUEUED, State.STAGING, 1.0))
            outcomes.append("moved")
        except Conflict:
            outcomes.append("late")

    threads = [threading.Thread(target=attempt) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["late"] * 5 + ["moved"]
    with queued.read() as c:
        assert [row.body for row in events.read_after(c, "s1", 0)] == [
            '{"state": "queued"}',
            '{"state": "staging"}',
        ]


def test_a_final_state_has_no_transition(queued: Database) -> None:
    queued.write(lambda c: simulations.move(c, "s1", State.QUEUED, State.CANCELLED, 1.0, summary="{}"))
    with pytest.raises(IllegalTransition):
        queued.write(lambda c: simulations.move(c, "s1", State.CANCELLED, State.QUEUED, 1.0))


def test_a_reason_with_any_characters_of_a_model_is_stored(queued: Database) -> None:
    changes = {"reason": "output \0: \x1b[1m ü", "summary": "{}"}
    queued.write(lambda c: simulations.move(c, "s1", State.QUEUED, State.CANCELLED, 1.0, **changes))
    with queued.read() as c:
        assert simulations.find(c, PLATFORM, "s1").reason == "output \ufffd: \x1b[1m ü"


def test_the_submission_is_kept_after_the_simulation_has_ended(queued: Database) -> None:
    queued.write(lambda c: simulations.respecify(c, PLATFORM, "s1", {"workers": 2}))
    queued.write(lambda c: simulations.move(c, "s1", State.QUEUED, State.CANCELLED, 1.0, summary="{}"))
    with pytest.raises(Conflict):
        queued.write(lambda c: simulations.respecify(c, PLATFORM, "s1", {"workers": 3}))
    with queued.read() as c:
        assert simulations.find(c, PLATFORM, "s1").spec == '{"workers": 2}'


def test_counts_and_versions_of_no_simulations_are_empty(database: Database) -> None:
    with database.read() as c:
        assert simulations.counts_of(c, []) == {} and simulations.versions(c, []) == {}


def test_a_pinned_row_exists_and_a_deleted_row_cannot_be_pinned(queued: Database) -> None:
    queued.write(lambda c: simulations.hold(c, PLATFORM, "s1"))
    queued.write(lambda c: simulations.delete(c, PLATFORM, "s1", 1.0))
    for id in ("s1", "s2"):
        with pytest.raises(UnknownSimulation):
            queued.write(lambda c, id=id: simulations.hold(c, PLATFORM, id))  # type: ignore[misc]


def test_labels_are_compared_case_sensitively(database: Database) -> None:
    labels_of = {"s1": {"env": "prod"}, "s2": {"env": "Prod"}, "s3": {"env": "prod", "team": "a%b_c"}}

    def add(c: Connection) -> None:
        for id, labels in labels_of.items():
            stage = {"id": f"{id}.0", "simulation_id": id, "ordinal": 0, "total": 1, "state": "open"}
            simulations.add(c, ROW | {"id": id, "labels": json.dumps(labels, separators=(",", ":"))}, stage)

    database.write(add)

    def listed_ids(*label: tuple[str, str]) -> list[str]:
        with database.read() as c:
            return [row.id for row in listing.page(c, PLATFORM, Listing(labels=label), after=None, limit=9)]

    assert listed_ids() == ["s3", "s2", "s1"]
    assert (
        listed_ids(("env", "prod")) == ["s3", "s1"]
        and listed_ids(("env", "Prod")) == ["s2"]
        and listed_ids(("ENV", "prod")) == []
    )
    assert listed_ids(("env", "prod"), ("team", "a%b_c")) == ["s3"] and listed_ids(("team", "a_b_c")) == []
    assert listed_ids(("env", "Prod"), ("env", "prod")) == listed_ids(("env", "prod"), ("env", "Prod")) == []


def test_a_claim_belongs_to_its_owner_until_it_expires(queued: Database) -> None:
    def claim(owner: str, now: float) -> bool:
        return queued.write(lambda c: simulations.claim(c, "s1", State.QUEUED, owner, 10.0, now))

    assert claim("a", 0.0) and claim("a", 5.0)
    assert not claim("b", 14.0)
    assert claim("b", 15.1)


def test_a_second_leader_is_elected_only_after_the_term_of_the_first(database: Database) -> None:
    def take(owner: str, now: float) -> int | None:
        return database.write(lambda c: leaders.take(c, "dispatch", owner, 10.0, now))

    assert take("a", 0.0) == 1 and take("a", 5.0) == 1
    assert take("b", 14.0) is None
    assert take("b", 16.0) == 2
    assert not database.write(lambda c: leaders.holds(c, "dispatch", 1)), (
        "the first leader loses its term at its next write"
    )


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # the disk of a database server is not filled
def test_a_full_disk_is_named_in_the_error_and_loses_nothing(queued: Database) -> None:
    pages = queued.write(lambda c: c.execute(text("PRAGMA page_count")).scalar_one())
    queued.write(lambda c: c.execute(text(f"PRAGMA max_page_count = {pages}")).all())
    with pytest.raises(StorageFull):
        queued.write(lambda c: events.say(c, "s1", "note", {"long": "x" * 100_000}, 1.0))
    queued.write(lambda c: c.execute(text("PRAGMA max_page_count = 1000000")).all())
    queued.write(lambda c: events.say(c, "s1", "note", {"long": "x" * 100_000}, 1.0))
    with queued.read() as c:
        assert [row.seq for row in events.read_after(c, "s1", 0)] == [1, 2]


def test_a_locked_sqlite_database_is_an_outage_and_not_an_error_of_the_platform(tmp_path: Path) -> None:
    database = sqlite_database(tmp_path / "test.db")
    database.write(lambda c: c.execute(text("PRAGMA busy_timeout=10")) and None)  # milliseconds
    with closing(sqlite3.connect(tmp_path / "test.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnavailable, match="database"):
            database.write(lambda c: leaders.take(c, "dispatch", "a", 1.0, 1.0))
        other.execute("COMMIT")
    assert database.write(lambda c: leaders.take(c, "dispatch", "a", 1.0, 1.0)) == 1
    database.close()


def test_a_postgresql_that_is_away_is_an_outage_and_recovers(
    postgres: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = make_url(postgres_url(postgres, request.node.nodeid))
    [socket] = Path(str(address.query["host"])).glob(".s.PGSQL.*[0-9]")
    link = tmp_path / socket.name
    link.symlink_to(socket)
    database = Database(address.update_query_dict({"host": str(tmp_path)}).render_as_string(hide_password=False))
    assert database.write(lambda c: leaders.take(c, "dispatch", "a", 1.0, 1.0)) == 1
    link.unlink()
    with psycopg.connect(postgres, autocommit=True) as admin:
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname=%s"
        admin.execute(end, [address.database])
    with pytest.raises(StoreUnavailable, match="database"):
        database.write(lambda c: leaders.take(c, "dispatch", "a", 1.0, 1.0))
    with pytest.raises(StoreUnavailable), database.read() as c:
        leaders.holds(c, "dispatch", 1)
    with pytest.raises(StoreUnavailable), database.exclusive("models"):
        pass
    link.symlink_to(socket)
    assert database.write(lambda c: leaders.take(c, "dispatch", "a", 1.0, 1.0)) == 1
    database.close()


def test_a_connection_of_postgresql_that_ends_during_a_transaction_is_an_outage(
    postgres: str, request: pytest.FixtureRequest
) -> None:
    database = Database(postgres_url(postgres, request.node.nodeid))
    end = text("SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(StoreUnavailable):
        database.write(lambda c: c.execute(end) and None)
    with pytest.raises(StoreUnavailable), database.read() as c:
        c.execute(end)
    database.close()


def test_a_mistake_in_a_query_is_not_called_an_outage(database: Database) -> None:
    with pytest.raises(DBAPIError), database.read() as c:
        c.execute(text("SELECT * FROM nothing"))
    with pytest.raises(DBAPIError):
        database.write(lambda c: c.execute(text("SELECT * FROM nothing")).all())


def test_two_processes_on_one_sqlite_database_wait_for_each_other_fairly(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'shared.db'}")
    migrate(database)
    other = Database(database.url)
    counts = {"a": 0, "b": 0}
    stop = threading.Event()

    def work(name: str, connected: Database) -> None:
        while not stop.wait(0):
            connected.write(lambda c: c.execute(text("DELETE FROM leaders")), durable=False)
            counts[name] += 1

    threads = [threading.Thread(target=work, args=pair) for pair in (("a", database), ("b", other))]
    for thread in threads:
        thread.start()
    stop.wait(1.0)
    stop.set()
    for thread in threads:
        thread.join()
    other.close()
    database.close()
    assert min(counts.values()) > 5, f"one process starved: {counts}"


def test_connections_that_are_in_use_at_the_end_are_closed_when_they_are_returned(postgres: str) -> None:
    database = Database(postgres_url(postgres, "connections in use at the end"))
    with database.read() as c:
        in_use = c.connection.driver_connection
        database.close()
    with database.read() as c:  # of a thread that looks once more
        later = c.connection.driver_connection
    assert isinstance(in_use, psycopg.Connection) and isinstance(later, psycopg.Connection)
    assert in_use.closed and later.closed
