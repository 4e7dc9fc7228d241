"""Fixtures and settings of all tests."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from werkzeug.routing import Rule
from xdist.scheduler import LoadScopeScheduling

from core.store.database import Database
from tests.databases import postgres_url, sqlite_database
from tests.postgres import own_postgres
from tests.s3_servers import minio as minio  # pytest looks fixtures up by name in this module
from tests.s3_servers import own_minio as own_minio
from tests.s3_servers import swift as swift
from tests.tiers import is_verify
from tests.xdist_groups import SCHEDULING

# Examples have no deadline: tests must pass on a busy machine. `make verify` runs with --hypothesis-profile=thorough.
settings.register_profile("quick", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=1000)
settings.load_profile("quick")

#: The most bytes of a parameter that are shown in the name of a test.
LONGEST_NAME = 32


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Keep tests that share a server (`--dist loadgroup`), or a file (`loadfile`), in one process."""
    scheduling = SCHEDULING.get(config.getvalue("dist"))
    return None if scheduling is None else scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that only `make verify` runs."""
    for item in items:
        if is_verify(item.nodeid):
            item.add_marker(pytest.mark.verify)


@pytest.fixture(autouse=True, scope="session")
def addresses_built_late() -> Iterator[None]:
    """Let an application compile how it builds an address when it builds one: it starts in a sixth of the time.

    Thousands of tests start an application of their own, with 300 routes; few of them build any address.
    """
    compiled = Rule._compile_builder

    def late(rule: Rule, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        return lambda *values, **named: compiled(rule, append_unknown)(*values, **named)

    Rule._compile_builder = late  # type: ignore[method-assign]
    yield
    Rule._compile_builder = compiled  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the platform's settings from the environment, so that tests do not depend on it."""
    for name in [name for name in os.environ if name.startswith("WINDTUNNEL_")]:
        monkeypatch.delenv(name)


class Clock:
    """Clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a real PostgreSQL of this test process."""
    with own_postgres() as server:
        yield server.url


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Database]:
    """A database without rows, on each engine."""
    if request.param == "sqlite":
        database = sqlite_database(tmp_path / "test.db", clock=clock)
    else:
        database = Database(postgres_url(request.getfixturevalue("postgres"), request.node.nodeid), clock=clock)
    yield database
    database.close()


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Name many bytes by their argument: packed bytes hold the time, and all workers have to agree on names."""
    return argname if isinstance(val, bytes) and len(val) > LONGEST_NAME else None
