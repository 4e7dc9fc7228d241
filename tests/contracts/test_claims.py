"""A job's claim on a simulation: one at a time, and free again soon after a job was killed."""

import threading
from pathlib import Path

import pytest

from core.domain.states import State
from core.services import claims
from core.services.claims import claimed
from core.store import simulations
from core.store.database import Database
from tests.contracts.test_database import ROW
from tests.databases import sqlite_database


@pytest.fixture
def queued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr(claims, "TERM", 0.6)
    database = sqlite_database(tmp_path / "claims.db")
    stage = {"id": "s1.0", "simulation_id": "s1", "ordinal": 0, "total": 1, "state": "open"}
    database.write(lambda c: simulations.add(c, ROW, stage))
    return database


def test_a_second_ring_does_nothing_however_long_the_first_takes(queued: Database) -> None:
    with claimed(queued, "s1", State.QUEUED) as first:
        threading.Event().wait(1.5)  # more than two terms: a living job renews its claim
        with claimed(queued, "s1", State.QUEUED) as second:
            assert first and not second


def test_what_a_killed_job_held_is_free_after_a_term(queued: Database) -> None:
    assert queued.write(lambda c: simulations.claim(c, "s1", State.QUEUED, "killed", 0.5, queued.now(c)))
    with claimed(queued, "s1", State.QUEUED) as early:
        assert not early
    threading.Event().wait(0.7)
    with claimed(queued, "s1", State.QUEUED) as later:
        assert later


def test_a_simulation_that_has_moved_on_is_nobody_s(queued: Database) -> None:
    with claimed(queued, "s1", State.RUNNING) as ours:
        assert not ours
