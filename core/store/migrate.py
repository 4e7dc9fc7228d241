"""Schema migration with Alembic."""

import logging
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, make_url, text
from sqlalchemy.exc import OperationalError

from common.errors import StoreUnavailable
from core.store.database import Database

_FOLDER = Path(__file__).parent / "migrations"
#: Advisory lock during the migration: several pods may start at once, and each would create the same tables.
_LOCK = text("SELECT pg_advisory_xact_lock(7406133)")
#: PostgreSQL's code of a deadlock, and the most attempts of a migration that others' transactions are deadlocked with.
_DEADLOCK, _ATTEMPTS = "40P01", 10
logger = logging.getLogger(__name__)


class LaterSchema(Exception):
    """The schema is that of a later version: it cannot be migrated here. The text has the next step."""


def migrate(database: Database, revision: str = "head") -> None:
    """Apply the missing revisions; safe to repeat and to run concurrently.

    Raise LaterSchema if the database has revisions that this version does not know, StoreUnavailable if it does not
    answer.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _apply(database, revision)
        except OperationalError as error:
            # Processes of the earlier version, which go on meanwhile, lock tables in other orders.
            if getattr(error.orig, "sqlstate", None) != _DEADLOCK or attempt == _ATTEMPTS:
                reason = " ".join(str(error.orig).split())
                raise StoreUnavailable(f"{_named(database.url)} cannot be used: {reason}") from error
            logger.warning("migration: tables were locked in another order; attempt %d of %d", attempt + 1, _ATTEMPTS)


def _apply(database: Database, revision: str) -> None:
    """Apply the missing revisions, on PostgreSQL all or none. Raise LaterSchema, or OperationalError."""
    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    with database.engine.connect() as connection:
        config.attributes["connection"] = connection
        if not database.embedded:
            connection.execute(_LOCK)
        if later := _unknown_revisions(connection, ScriptDirectory.from_config(config)):
            raise LaterSchema(
                f"{'This home' if database.embedded else _named(database.url)} was written by a later version of"
                f" Windtunnel (schema {', '.join(later)}); start that version, or restore a backup."
            )
        command.upgrade(config, revision)
        connection.commit()


def _unknown_revisions(connection: Connection, revisions: ScriptDirectory) -> list[str]:
    """Return the revisions of the database that are not among those of this version."""
    known = {script.revision for script in revisions.walk_revisions()}
    return sorted(set(MigrationContext.configure(connection).get_current_heads()) - known)


def _named(url: str) -> str:
    """Describe the database by name and address, without user and password."""
    address = make_url(url)
    where = address.host or address.query.get("host", "this machine")
    return f"The database {address.database} at {where}:{address.port or 5432}"
