"""Bring a database's schema up to this version, by Alembic."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import text

from core.store.database import Database

_FOLDER = Path(__file__).parent / "migrations"
#: Held until all is applied: several pods may begin at once, and PostgreSQL would let each make the same tables.
_ALONE = text("SELECT pg_advisory_xact_lock(7406133)")


def migrate(database: Database, revision: str = "head") -> None:
    """Apply what is missing; safe to repeat, and to begin several times at once."""
    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    with database.engine.connect() as connection:
        config.attributes["connection"] = connection
        if not database.embedded:
            connection.execute(_ALONE)
        command.upgrade(config, revision)
        connection.commit()
