"""Migrations: concurrent processes on one PostgreSQL, as the pods of a release; errors are one line."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import select, text

from core.store.database import Database
from core.store.migrate import migrate
from core.store.postgres import CONNECTING
from core.store.tables import executors, metadata, ranges
from tests.databases import postgres_url
from tests.waiting import until

PROCESS_COUNT = 4


def test_concurrent_migrations_of_one_database_all_succeed(
    postgres: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = postgres_url(postgres, request.node.nodeid, migrated=False)
    environments = [
        {"WINDTUNNEL_HOME": str(tmp_path / str(number)), "WINDTUNNEL_DATABASE_URL": url}
        for number in range(PROCESS_COUNT)
    ]
    command = [sys.executable, "-m", "server", "migrate"]
    processes = [subprocess.Popen(command, env=process, stderr=subprocess.PIPE, text=True) for process in environments]
    for process in processes:
        _, output = process.communicate(timeout=120)
        assert process.returncode == 0, output
    database = Database(url)
    try:
        with database.engine.connect() as connection:
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    finally:
        database.close()


def test_a_migration_that_is_deadlocked_with_a_process_of_before_is_made_again(
    postgres: str, request: pytest.FixtureRequest
) -> None:
    url = postgres_url(postgres, request.node.nodeid, migrated=False)
    database, before = Database(url), Database(url)
    migrate(database, "0020")
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation='idempotency'::regclass")
    with before.engine.connect() as other, ThreadPoolExecutor(1) as thread:
        other.execute(text("SET deadlock_timeout='60s'"))  # the migration notices first, and is the one that ends
        other.execute(text("LOCK TABLE idempotency IN ROW SHARE MODE"))
        migration = thread.submit(migrate, database)
        with before.read() as observer:  # 0021 changes the table of imports, then that of keys
            until(lambda: observer.scalar(waiting) == 1)
        other.execute(text("SELECT count(*) FROM model_imports"))
        other.rollback()
        migration.result(timeout=120)
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    database.close()
    before.close()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """The port of a server that accepts connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


def failed_migration_message(url: str, home: Path, code: int = 1) -> str:
    """Start a migration that must fail with an exit code; return its message."""
    environment = {"WINDTUNNEL_HOME": str(home), "WINDTUNNEL_DATABASE_URL": url}
    completed = subprocess.run(
        [sys.executable, "-m", "server", "migrate"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert completed.returncode == code and "secret" not in completed.stderr
    [line] = [line for line in map(json.loads, completed.stderr.splitlines()) if line["level"] != "INFO"]
    message: str = line["message"]
    return message


def test_an_unknown_host_of_a_database_is_named_in_one_line_without_the_password(tmp_path: Path) -> None:
    message = failed_migration_message("postgresql+psycopg://tim:secret@nowhere.invalid/wind", tmp_path)
    assert message.startswith("The database wind at nowhere.invalid:5432 cannot be used: failed to resolve host")


def test_a_refused_connection_to_the_database_is_named(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    message = failed_migration_message(f"postgresql+psycopg://tim:secret@127.0.0.1:{port}/wind", tmp_path)
    assert f"The database wind at 127.0.0.1:{port} cannot be used: " in message and "refused" in message


def test_a_database_that_never_answers_is_given_up_after_the_timeout(tmp_path: Path, silent_port: int) -> None:
    start = time.monotonic()
    message = failed_migration_message(f"postgresql+psycopg://tim:secret@127.0.0.1:{silent_port}/wind", tmp_path)
    assert f"The database wind at 127.0.0.1:{silent_port} cannot be used: " in message and "timeout" in message
    assert time.monotonic() - start > CONNECTING - 1


def test_a_url_may_set_another_connect_timeout(tmp_path: Path, silent_port: int) -> None:
    start = time.monotonic()
    failed_migration_message(
        f"postgresql+psycopg://tim:secret@127.0.0.1:{silent_port}/wind?connect_timeout=2", tmp_path
    )
    assert time.monotonic() - start < CONNECTING


def test_a_postgresql_without_that_database_is_named(
    postgres: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = postgres_url(postgres, request.node.nodeid, migrated=False)
    message = failed_migration_message(url.replace(url.partition("?")[0].rpartition("/")[2], "nothing"), tmp_path)
    assert "cannot be used" in message and 'database "nothing" does not exist' in message


def test_a_postgresql_of_a_later_version_is_left_as_it_is(
    postgres: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = postgres_url(postgres, request.node.nodeid)
    database = Database(url)
    database.write(lambda c: c.execute(text("UPDATE alembic_version SET version_num = '9999'")))
    message = failed_migration_message(url, tmp_path, code=2)
    assert "was written by a later version of Windtunnel (schema 9999); start that version, or restore" in message
    with database.read() as c:
        assert c.scalar(text("SELECT version_num FROM alembic_version")) == "9999"
    database.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_database_with_the_former_column_names_keeps_its_rows(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'windtunnel.db'}"
    if kind == "postgresql":
        url = postgres_url(request.getfixturevalue("postgres"), request.node.nodeid, migrated=False)
    database = Database(url)
    try:
        migrate(database, "0004")
        with database.engine.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO ranges(stage_id, start, stop, mark, state, fence, driver, beat_at, twins, silences)"
                    " VALUES('s', 0, 9, 4, 'leased', 'f', 'd', 1.5, 1, 2)"
                )
            )
            connection.execute(
                text(
                    "INSERT INTO executors(name, kind, cores, held, well, said, since)"
                    " VALUES('e', 'local', 8, 3, 0, 'away', 2.5)"
                )
            )
        migrate(database)
        with database.engine.connect() as connection:
            [lease] = connection.execute(select(ranges)).mappings()
            [executor] = connection.execute(select(executors)).mappings()
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        names = ("cursor", "fencing_token", "worker", "heartbeat_at", "speculative", "expiries")
        assert tuple(lease[name] for name in names) == (4, "f", "d", 1.5, 1, 2)
        assert tuple(executor[name] for name in ("workers", "in_use", "healthy", "last_error")) == (8, 3, 0, "away")
    finally:
        database.close()
