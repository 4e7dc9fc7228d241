"""Claims on the rows of each table, on each database engine: one job at a time, while the row needs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Column, Float, Integer, insert, text, update

from core.store import datasets, model_imports, run_logs, simulations, webhooks
from core.store.claims import Claims, HeldClaim
from core.store.comparisons import COMPARISONS
from core.store.database import Connection, Database
from core.store.pipelines import PIPELINES

TERM = 9.0
OURS, OTHER = HeldClaim("row", "ours"), HeldClaim("row", "other")


@dataclass(frozen=True, slots=True)
class ClaimedTable:
    """A table's claims, the columns of a row that needs the job, and of one that does not."""

    claims: Claims
    needed: Mapping[str, Any]
    over: Mapping[str, Any]


TABLES = {
    "run logs": ClaimedTable(run_logs.CLAIMS, {"state": "waiting"}, {"state": "logged"}),
    "imports": ClaimedTable(model_imports.CLAIMS, {"state": "fetching"}, {"state": "ready"}),
    "comparisons": ClaimedTable(COMPARISONS.claims, {"state": "cancelling"}, {"state": "cancelled"}),
    "pipelines": ClaimedTable(PIPELINES.claims, {"state": "cancelling"}, {"state": "cancelled"}),
    "versions": ClaimedTable(datasets.CLAIMS, {"state": "registering"}, {"state": "ready"}),
    "prefetches": ClaimedTable(datasets.PREFETCHES, {"state": "fetching"}, {"state": "ready"}),
    "webhooks": ClaimedTable(webhooks.CLAIMS, {"state": "active"}, {"state": "paused"}),
    "staged simulations": ClaimedTable(simulations.STAGING, {"state": "staging"}, {"state": "queued"}),
    "deleted simulations": ClaimedTable(
        simulations.DELETED, {"state": "queued", "deleted_at": 1.0}, {"state": "queued", "deleted_at": None}
    ),
}


@pytest.fixture(params=list(TABLES))
def table(request: pytest.FixtureRequest, database: Database) -> ClaimedTable:
    """A table with a row that needs its job."""
    return filled(database, request.param)


def filled(database: Database, name: str) -> ClaimedTable:
    """Insert a row that needs its job."""
    claimed = TABLES[name]
    required = [c for c in claimed.claims.table.columns if not c.nullable and c.server_default is None]
    row = {column.name: _value(column) for column in required} | dict(claimed.needed)
    database.write(lambda c: c.execute(insert(claimed.claims.table).values(row)))
    return claimed


def _value(column: Column[Any]) -> object:
    return "row" if column.primary_key else 0 if isinstance(column.type, Integer | Float) else "{}"


def take(database: Database, table: ClaimedTable, claim: HeldClaim, now: float) -> bool:
    return database.write(lambda c: table.claims.take(c, claim, TERM, now))


def test_one_job_at_a_time_has_the_claim_and_renews_it(database: Database, table: ClaimedTable) -> None:
    assert take(database, table, OURS, 100.0)
    assert not take(database, table, OTHER, 101.0)
    assert take(database, table, OURS, 108.0)
    assert not take(database, table, OTHER, 116.0)


def test_a_claim_that_has_expired_is_taken_by_another_and_no_longer_counts(
    database: Database, table: ClaimedTable
) -> None:
    assert take(database, table, OURS, 100.0)
    assert take(database, table, OTHER, 110.0)
    assert not database.write(lambda c: table.claims.release(c, OURS))
    assert not database.write(lambda c: table.claims.lock(c, OURS))
    assert database.write(lambda c: table.claims.lock(c, OTHER))
    assert not take(database, table, OURS, 111.0)


def test_a_claim_that_was_released_may_be_taken_at_once(database: Database, table: ClaimedTable) -> None:
    assert take(database, table, OURS, 100.0)
    assert database.write(lambda c: table.claims.release(c, OURS))
    assert take(database, table, OTHER, 100.0)


def test_a_row_that_needs_no_job_any_more_cannot_be_claimed_nor_changed(
    database: Database, table: ClaimedTable
) -> None:
    assert take(database, table, OURS, 100.0)
    database.write(lambda c: c.execute(update(table.claims.table).values(**table.over)))
    assert not take(database, table, OURS, 101.0)
    assert not database.write(lambda c: table.claims.change(c, OURS, claim="x"))
    assert not take(database, table, OTHER, 200.0)


def test_the_claim_of_a_process_of_another_version_holds(database: Database, table: ClaimedTable) -> None:
    """Such a process writes with a statement of its own to the same columns."""

    def claim(c: Connection) -> None:
        name = table.claims.table.name
        c.execute(text(f"UPDATE {name} SET claim='older', claim_until=:until"), {"until": 109.0})

    database.write(claim)
    with database.read() as c:
        assert table.claims.due(c, 105.0) == []
    assert not take(database, table, OURS, 105.0)
    assert take(database, table, OURS, 110.0)


@pytest.mark.parametrize(
    "name", ["imports", "versions", "prefetches", "comparisons", "pipelines", "deleted simulations"]
)
def test_a_row_is_due_until_a_job_claims_it_and_when_the_claim_has_expired(database: Database, name: str) -> None:
    claimed = filled(database, name)
    with database.read() as c:
        assert claimed.claims.due(c, 100.0) == ["row"]
    assert take(database, claimed, OURS, 100.0)
    with database.read() as c:
        assert claimed.claims.due(c, 101.0) == []
        assert claimed.claims.due(c, 110.0) == ["row"]
