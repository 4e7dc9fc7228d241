"""Schema migration with Alembic."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import make_url, text
from sqlalchemy.exc import OperationalError

from core.store.database import Database
from errors import StoreUnavailable

_FOLDER = Path(__file__).parent / "migrations"
#: Advisory lock during the migration: several pods may start at once, and each would create the same tables.
_LOCK = text("SELECT pg_advisory_xact_lock(7406133)")


def migrate(database: Database, revision: str = "head") -> None:
    """Apply the missing revisions; safe to repeat and to run concurrently."""
    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    try:
        with database.engine.connect() as connection:
            config.attributes["connection"] = connection
            if not database.embedded:
                connection.execute(_LOCK)
            command.upgrade(config, revision)
            connection.commit()
    except OperationalError as error:
        raise StoreUnavailable(f"{_named(database.url)} cannot be used: {' '.join(str(error.orig).split())}") from error


def _named(url: str) -> str:
    """Describe the database by name and address, without user and password."""
    address = make_url(url)
    where = address.host or address.query.get("host", "this machine")
    return f"The database {address.database} at {where}:{address.port or 5432}"
