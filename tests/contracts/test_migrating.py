"""Several processes may bring one PostgreSQL's schema up at once, as a release's pods do."""

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from core.store.database import Database
from core.store.tables import metadata
from tests.conftest import fresh_postgres

TOGETHER = 4


def test_whoever_comes_first_makes_the_tables_and_the_others_find_them(
    postgres: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = fresh_postgres(postgres, request.node.nodeid)
    environments = [
        {"WINDTUNNEL_HOME": str(tmp_path / str(number)), "WINDTUNNEL_DATABASE_URL": url} for number in range(TOGETHER)
    ]
    command = [sys.executable, "-m", "workers", "migrate"]
    running = [subprocess.Popen(command, env=one, stderr=subprocess.PIPE, text=True) for one in environments]
    for one in running:
        _, said = one.communicate(timeout=120)
        assert one.returncode == 0, said
    database = Database(url)
    try:
        with database.engine.connect() as connection:
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    finally:
        database.close()
