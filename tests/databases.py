"""Databases with the current schema, on SQLite and PostgreSQL: copies of a template, migrated once per process."""

import functools
import hashlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import psycopg

from core.domain.scheduling.states import FINAL
from core.store.database import Database
from core.store.migrate import migrate

TEMPLATE = "windtunnel_template"


def sqlite_database(path: Path, *, clock: Callable[[], float] | None = None) -> Database:
    """Open a new SQLite database at a path; its schema is the current one."""
    shutil.copyfile(_template(), path)
    return Database(f"sqlite:///{path}", clock=clock)


def postgres_url(server: str, name: str, *, migrated: bool = True) -> str:
    """Create a database on a server, empty or with the current schema, and return its URL.

    ``name`` is any text that is unique to the caller, such as a test's node id.
    """
    database = "t" + hashlib.sha256(name.encode()).hexdigest()[:20]
    template = _postgres_template(server) if migrated else "template1"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {database}")
        connection.execute(f"CREATE DATABASE {database} TEMPLATE {template}")
    return _url_of(server, database)


@functools.cache
def _template() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="windtunnel-template-")
    _folders.append(folder)
    path = Path(folder.name) / "template.db"
    database = Database(f"sqlite:///{path}")
    migrate(database)
    database.close()
    with sqlite3.connect(path) as connection:  # no test sees a final state without a summary
        for event in ("INSERT", "UPDATE"):
            connection.execute(
                f"CREATE TRIGGER final_with_summary_{event} AFTER {event} ON simulations"
                f" WHEN NEW.summary IS NULL AND NEW.state IN ({', '.join(f'{state.value!r}' for state in FINAL)})"
                " BEGIN SELECT RAISE(ABORT, 'a final state is written with its summary'); END"
            )
    connection.close()
    return path


@functools.cache
def _postgres_template(server: str) -> str:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {TEMPLATE}")
    database = Database(_url_of(server, TEMPLATE))
    migrate(database)
    database.close()
    return TEMPLATE


def _url_of(server: str, database: str) -> str:
    head, _, query = server.partition("?")
    base = head.rpartition("/")[0].replace("postgresql://", "postgresql+psycopg://")
    return f"{base}/{database}" + (f"?{query}" if query else "")


#: Temporary folders of templates, removed when the process ends.
_folders: list[tempfile.TemporaryDirectory[str]] = []
