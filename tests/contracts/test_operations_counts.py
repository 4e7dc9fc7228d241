"""Contract of the counts that operators look at, on each engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import insert

from core.store import queue_counts, storage_sums
from core.store.database import Connection, Database
from core.store.tables import launches, models, ranges, segments, simulations, stages
from tests.databases import postgres_url, sqlite_database

ROW = {"project": "default", "provenance": "{}", "dataset": "d", "runtime": "r", "model": "m", "digest": "x"}


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "postgresql":
        opened = Database(postgres_url(request.getfixturevalue("postgres"), request.node.nodeid))
    else:
        opened = sqlite_database(tmp_path / "windtunnel.db")
    yield opened
    opened.close()


def add(
    c: Connection, id: str, state: str, *, named: str = "", total: int = 10, leased: int = 0, **columns: object
) -> None:
    spec = f'{{"placement": {{"executor": "{named}"}}}}' if named else "{}"
    c.execute(insert(simulations).values(id=id, state=state, spec=spec, **{"created_at": 5.0} | ROW | columns))
    c.execute(insert(stages).values(id=f"{id}.0", simulation_id=id, ordinal=0, total=total, next=leased, state="open"))


def test_what_waits_is_counted_by_state_executor_and_hold(database: Database) -> None:
    def fill(c: Connection) -> None:
        add(c, "a", "queued")
        add(c, "b", "queued", total=20, created_at=3.0)
        add(c, "c", "queued", named="hpc", not_before=100.0)
        add(c, "d", "launching", executor="local", leased=10)
        c.execute(insert(ranges).values(stage_id="d.0", start=0, stop=10, cursor=4, state="pending"))
        add(c, "e", "running", executor="local")
        add(c, "f", "queued", deleted_at=1.0)
        add(c, "g", "queued", dry_run=1)

    database.write(fill)
    with database.read() as c:
        rows = queue_counts.waiting(c, 50.0)
    counted = {(row.state, row.executor, row.paused, int(row.simulations), int(row.tasks), row.since) for row in rows}
    assert counted == {
        ("queued", None, 0, 2, 30, 3.0),
        ("queued", "hpc", 1, 1, 10, 5.0),
        ("launching", "local", 0, 1, 6, 5.0),
    }


def test_leases_are_counted_by_executor(database: Database) -> None:
    def fill(c: Connection) -> None:
        add(c, "a", "running", leased=10)
        launch = {"attempt": 1, "token_hash": "", "resources": "{}", "created_at": 1.0}
        for id, of, executor, state in (
            ("l1", "a", "local", "live"),
            ("l2", "b", "hpc", "live"),
            ("l3", "a", "hpc", "over"),
        ):
            c.execute(insert(launches).values(id=id, simulation_id=of, executor=executor, state=state, **launch))
        lease = {"stage_id": "a.0", "state": "leased", "launch_id": "l1"}
        c.execute(insert(ranges).values(start=0, stop=4, cursor=1, rate=2.5, **lease))
        c.execute(insert(ranges).values(start=4, stop=8, cursor=4, rate=None, **lease))
        c.execute(insert(ranges).values(start=8, stop=10, cursor=8, **lease | {"state": "pending"}))

    database.write(fill)
    with database.read() as c:
        leases, live = queue_counts.leases(c), queue_counts.launches(c)
    assert live == {"local": 1, "hpc": 1}
    assert {name: (row.leases, int(row.tasks), row.rate) for name, row in leases.items()} == {"local": (2, 7, 2.5)}


def test_a_part_of_an_object_counts_once(database: Database) -> None:
    def fill(c: Connection) -> None:
        for id, version in (("m1", 1), ("m2", 2)):
            row = {"project": "default", "name": "m", "digest": "same", "format": "python", "created_at": 1.0}
            c.execute(insert(models).values(id=id, version=version, size=100, **row))
        part = {"stop": 9, "object": "results/a/0", "crc32": 0, "failed": 0}
        c.execute(insert(segments).values(stage_id="a.0", start=0, offset=0, bytes=60, **part))
        c.execute(insert(segments).values(stage_id="a.0", start=5, offset=60, bytes=40, **part))
        c.execute(insert(segments).values(stage_id="retry.0", start=0, offset=0, bytes=30, **part))

    database.write(fill)
    with database.read() as c:
        sums, size = storage_sums.by_kind(c), database.size(c)
    assert sums["models"] == (1, 100) and sums["results"] == (1, 100) and sums["uploads"] == (0, 0)
    assert size > 4096
