"""Claims of jobs on simulations, on each database engine: exclusive, renewed while the job lives, then expired."""

import time

import pytest

from core.domain.access.scopes import PLATFORM
from core.domain.scheduling.states import State
from core.services.claims import claimed
from core.services.due_jobs import DueJobs
from core.store import simulations
from core.store.database import Database
from tests.conftest import Clock
from tests.contracts.test_database import ROW


@pytest.fixture
def queued(database: Database) -> Database:
    stage = {"id": "s1.0", "simulation_id": "s1", "ordinal": 0, "total": 1, "state": "open"}
    database.write(lambda c: simulations.add(c, ROW, stage))
    return database


def until_renewed(database: Database, until: float) -> None:
    """Wait until the claim's expiry is later than `until`."""
    deadline = time.monotonic() + 30.0
    while True:
        with database.read() as c:
            if simulations.find(c, PLATFORM, "s1").claim_until > until:
                return
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_second_job_gets_no_claim_while_the_first_renews_it(queued: Database, clock: Clock) -> None:
    term = 0.3
    with claimed(queued, "s1", State.QUEUED, term=term) as first:
        for _ in range(5):  # more than two terms: a living job renews its claim
            clock.now += term / 2
            until_renewed(queued, clock.now + term / 2)
        with claimed(queued, "s1", State.QUEUED, term=term) as second:
            assert first and not second


def test_the_claim_of_a_killed_job_expires_after_its_term(queued: Database, clock: Clock) -> None:
    assert queued.write(lambda c: simulations.claim(c, "s1", State.QUEUED, "killed", 0.5, queued.now(c)))
    with claimed(queued, "s1", State.QUEUED) as early:
        assert not early
    clock.now += 0.7
    with claimed(queued, "s1", State.QUEUED) as later:
        assert later


def test_a_simulation_in_another_state_cannot_be_claimed(queued: Database) -> None:
    with claimed(queued, "s1", State.RUNNING) as has_claim:
        assert not has_claim


def test_a_job_is_due_until_it_is_claimed_and_again_when_the_claim_has_expired(queued: Database, clock: Clock) -> None:
    due = DueJobs(queued)
    assert due.of("stage") == []
    queued.write(lambda c: simulations.move(c, "s1", State.QUEUED, State.STAGING, queued.now(c)))
    assert due.of("stage") == ["s1"] and due.of("collect") == []
    assert queued.write(lambda c: simulations.claim(c, "s1", State.STAGING, "killed", 9.0, queued.now(c)))
    assert due.of("stage") == []
    clock.now += 9.1
    assert due.of("stage") == ["s1"]
    queued.write(lambda c: simulations.conclude(c, "s1", State.STAGING, State.ERRORED, "it cannot be staged"))
    assert due.of("stage") == [] and due.of("collect") == ["s1"]
