"""Claims in every order of their transactions' steps: two jobs that were enqueued for one simulation, and its owner.

One job works while its claim lives; when a job that was stopped goes on beside its successor, one of them counts.
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import text

from common.errors import Conflict
from core.domain.access.scopes import PLATFORM
from core.domain.scheduling.states import State
from core.services import claims
from core.store import simulations
from core.store.database import Connection, Database
from core.store.tables import metadata
from tests.conftest import Clock
from tests.contracts.test_database import ROW
from tests.interleavings import Actor, Explorer, Violation, raised, take_turn


@dataclass
class World:
    """A running simulation whose tasks are done, and jobs that end it."""

    database: Database
    clock: Clock
    working: set[str] = field(default_factory=set)
    together: bool = False
    ended_by: list[str] = field(default_factory=list)

    def begin(self) -> None:
        self.clock.now = 1_800_000_000.0
        self.working, self.together, self.ended_by = set(), False, []

        def fill(c: Connection) -> None:
            for table in metadata.sorted_tables:
                c.execute(table.delete())
            stage = {"id": "s1.0", "simulation_id": "s1", "ordinal": 0, "total": 1, "state": "done"}
            simulations.add(c, ROW | {"state": "running"}, stage)

        self.database.write(fill)

    def _end(self, name: str) -> None:
        """Claim the simulation, look at it, and end it, as the job `collect` does."""
        with claims.claimed(self.database, "s1", State.RUNNING) as acquired:
            if not acquired:
                return
            self.working.add(name)
            self.together |= len(self.working) > 1
            with self.database.read() as c:
                state = State(simulations.find(c, PLATFORM, "s1").state)
            if state is State.RUNNING:
                self.database.write(
                    lambda c: simulations.move(
                        c, "s1", State.RUNNING, State.SUCCEEDED, self.clock.now, reason=name, summary="{}"
                    )
                )
                self.ended_by.append(name)
            self.working.discard(name)

    # -- actors

    def first(self) -> None:
        self._end("first")

    def second(self) -> None:
        self._end("second")

    def late(self) -> None:
        """Arrive when the claim of the first job has expired: it was stopped, and may go on."""
        take_turn(self.database)
        self.clock.now += claims.TERM + 1.0
        self._end("late")

    def owner(self) -> None:
        def cancel(c: Connection) -> None:
            if State(simulations.find(c, PLATFORM, "s1").state) is State.RUNNING:
                simulations.move(c, "s1", State.RUNNING, State.CANCELLING, self.clock.now)

        self.database.write(cancel)

    # -- properties

    def check(self, results: Mapping[str, Any]) -> None:
        unexpected = raised(results, Conflict)
        assert not unexpected, unexpected
        with self.database.read() as c:
            row = simulations.find(c, PLATFORM, "s1")
            ends = c.scalar(text("SELECT count(*) FROM events WHERE type='state' AND body LIKE '%succeeded%'"))
        assert len(self.ended_by) == ends <= 1, f"ended by {self.ended_by}"
        assert row.state != State.SUCCEEDED or [row.reason] == self.ended_by, f"ended by {self.ended_by}: {row.reason}"
        assert "late" in results or not self.together, "two jobs work while the claim of one lives"


@pytest.fixture
def world(database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    # No claim is renewed by itself here: what a renewal may meet is the term's end, which `late` brings about.
    monkeypatch.setattr(threading.Event, "wait", _waiting_without_terms(threading.Event.wait))
    yield World(database, clock)


def _waiting_without_terms(wait: Any) -> Any:
    def waiting(event: threading.Event, timeout: float | None = None) -> bool:
        return bool(wait(event, None if timeout == claims.TERM / 3 else timeout))

    return waiting


def explore(world: World, *actors: str, preemptions: int | None) -> None:
    def begin() -> Mapping[str, Actor]:
        world.begin()
        return {name: getattr(world, name) for name in actors}

    assert Explorer(world.database, preemptions=preemptions).explore(begin, world.check).schedules > 1


@pytest.mark.parametrize("preemptions", [pytest.param(1, id="quick"), pytest.param(None, id="deep")])
@pytest.mark.parametrize("actors", [("first", "second"), ("first", "late"), ("first", "owner")], ids="-and-".join)
def test_one_job_ends_a_simulation(world: World, actors: tuple[str, ...], preemptions: int | None) -> None:
    explore(world, *actors, preemptions=preemptions)


def test_without_the_holder_that_a_claim_believes_two_jobs_work(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = simulations._CLAIM.text.replace(" AND (claim IS NULL OR claim_until<:now OR claim=:who)", "")
    assert claim != simulations._CLAIM.text
    monkeypatch.setattr(simulations, "_CLAIM", text(claim))
    with pytest.raises(Violation, match="two jobs work"):
        explore(world, "first", "second", preemptions=1)


def test_without_the_state_that_an_end_believes_two_jobs_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    moving = simulations._moving

    def believing_nothing(changed: frozenset[str], *, again: bool) -> Any:
        statement = moving(changed, again=again)
        statement._where_criteria = statement._where_criteria[:1]
        return statement

    monkeypatch.setattr(simulations, "_moving", believing_nothing)
    with pytest.raises(Violation, match="ended by"):
        explore(world, "first", "late", preemptions=2)
