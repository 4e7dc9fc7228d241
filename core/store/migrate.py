"""Bring a database's schema up to this version, by Alembic."""

from pathlib import Path

from alembic import command
from alembic.config import Config

from core.store.database import Database

_FOLDER = Path(__file__).parent / "migrations"


def migrate(database: Database, revision: str = "head") -> None:
    """Apply what is missing; safe to repeat."""
    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    with database.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        connection.commit()
