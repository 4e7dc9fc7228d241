"""Two dispatchers in every order of their transactions' steps: a leader that was stopped, and its successor.

The former leader continues in the middle of whatever it was writing. Never do two launches of a simulation live, or
more workers run than an executor has, and no cancelled simulation is launched.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import text

from common.errors import Conflict
from core.domain.access.scopes import PLATFORM
from core.domain.scheduling.admission import FreeCapacity
from core.domain.scheduling.executor_config import ExecutorConfig
from core.domain.scheduling.states import State
from core.notifications.local_notifier import LocalNotifier
from core.services.scheduling.dispatch import Dispatch
from core.store import leaders, simulations
from core.store.database import Connection, Database
from core.store.tables import metadata
from tests.conftest import Clock
from tests.contracts.test_database import ROW
from tests.interleavings import Actor, Explorer, Violation, raised
from tests.provenances import provenance

CONFIG = ExecutorConfig(name="local", kind="local", workers=1)
TERM = 10.0


@dataclass
class World:
    """Two queued simulations, the first of which pauses until the term of the first leader is over; one free worker."""

    database: Database
    clock: Clock

    def begin(self) -> None:
        self.clock.now = 1_800_000_000.0
        now = self.clock.now

        def fill(c: Connection) -> None:
            for table in metadata.sorted_tables:
                c.execute(table.delete())
            for id, pause in (("s1", TERM), ("s2", 0.0)):
                row = ROW | {"id": id, "provenance": json.dumps(provenance().document()), "created_at": now}
                stage = {"id": f"{id}.0", "simulation_id": id, "ordinal": 0, "total": 9, "state": "open"}
                simulations.add(c, row | {"not_before": now + pause if pause else 0.0}, stage)

        self.database.write(fill)
        self.former, self.successor = self._dispatch(), self._dispatch()
        self.former.lead(self._elect("former"))
        self.snapshot = self.former.snapshot()  # it was stopped when it had read this
        self.clock.now += TERM + 1.0

    def _dispatch(self) -> Dispatch:
        return Dispatch(self.database, LocalNotifier(), executor_configs=[CONFIG], runner_api_url="http://runner-api")

    def _elect(self, holder: str) -> int | None:
        return self.database.write(lambda c: leaders.take(c, "dispatch", holder, TERM, self.clock.now))

    def _admit_and_launch(self, dispatch: Dispatch, snapshot: Any) -> None:
        free = [FreeCapacity(CONFIG, CONFIG.workers - snapshot.in_use(CONFIG.name), True)]
        for id, executor in snapshot.queue.admit(free, snapshot.now):
            if dispatch.admit(dispatch.simulation(id), executor):
                dispatch.launch(dispatch.simulation(id))

    # -- actors

    def former_leader(self) -> None:
        self._admit_and_launch(self.former, self.snapshot)

    def new_leader(self) -> None:
        self.successor.lead(self._elect("successor"))
        self._admit_and_launch(self.successor, self.successor.snapshot())

    def former_launch(self) -> None:
        self.former.launch(self.former.simulation("s2"))

    def new_launch(self) -> None:
        self.successor.lead(self._elect("successor"))
        self.successor.launch(self.successor.simulation("s2"))

    def owner(self) -> None:
        """Cancel the second simulation, as `Simulations.cancel` does."""
        self.database.write(
            lambda c: simulations.move(
                c,
                "s2",
                (state := State(simulations.find(c, PLATFORM, "s2").state)),
                State.CANCELLING if state is not State.QUEUED else State.CANCELLED,
                self.clock.now,
                **({"summary": "{}"} if state is State.QUEUED else {}),
            )
        )

    # -- properties

    def check(self, results: Mapping[str, Any]) -> None:
        unexpected = raised(results, Conflict)
        assert not unexpected, unexpected
        with self.database.read() as c:
            live = list(c.scalars(text("SELECT simulation_id FROM launches WHERE state='live' ORDER BY id")))
            states = {row.id: row.state for row in c.execute(text("SELECT id, state FROM simulations"))}
        assert len(live) == len(set(live)), f"two live launches: {live}"
        at_work = [id for id, state in states.items() if state in {"staging", "launching", "running"}]
        assert len(at_work) <= CONFIG.workers, f"more at work than there are workers: {states}"
        if "owner" in results and not isinstance(results["owner"], Conflict):
            assert states["s2"] in {State.CANCELLING, State.CANCELLED}, f"a cancelled simulation goes on: {states}"
            assert states["s2"] == State.CANCELLING or not live, f"a cancelled simulation goes on: {live}"


class LaunchingWorld(World):
    """The second simulation is admitted already, and the first leader was about to launch it."""

    def begin(self) -> None:
        super().begin()
        self.former.admit(self.former.simulation("s2"), CONFIG.name)


@pytest.fixture
def world(database: Database, clock: Clock) -> World:
    return World(database, clock)


@pytest.fixture
def launching(database: Database, clock: Clock) -> LaunchingWorld:
    return LaunchingWorld(database, clock)


def explore(world: World, *actors: str, preemptions: int | None = None) -> None:
    def begin() -> Mapping[str, Actor]:
        world.begin()
        return {name: getattr(world, name) for name in actors}

    assert Explorer(world.database, preemptions=preemptions).explore(begin, world.check).schedules > 1


def unlocked(patch: pytest.MonkeyPatch) -> None:
    """Let leaders check their epoch without a lock."""
    patch.setitem(leaders._HOLDS, "postgresql", leaders._HOLDS["sqlite"])


DEPTHS = [pytest.param(1, id="quick"), pytest.param(3, id="deep")]


@pytest.mark.parametrize("preemptions", DEPTHS)
def test_a_former_leader_admits_nothing_beside_its_successor(world: World, preemptions: int) -> None:
    explore(world, "former_leader", "new_leader", preemptions=preemptions)


@pytest.mark.parametrize("preemptions", DEPTHS)
def test_a_simulation_has_one_live_launch_whichever_dispatcher_leads(
    launching: LaunchingWorld, preemptions: int
) -> None:
    explore(launching, "former_launch", "new_launch", preemptions=preemptions)


@pytest.mark.parametrize("preemptions", DEPTHS)
def test_a_cancelled_simulation_is_not_launched(world: World, preemptions: int) -> None:
    explore(world, "former_leader", "owner", preemptions=preemptions)


def test_the_index_alone_keeps_a_simulation_to_one_live_launch(
    launching: LaunchingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlocked(monkeypatch)
    explore(launching, "former_launch", "new_launch", preemptions=1)


# -- broken variants: on SQLite, whose writers take turns, a home has one dispatcher, by its lock file


def test_without_the_lock_a_former_leader_admits_beside_its_successor(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlocked(monkeypatch)
    if world.database.embedded:
        explore(world, "former_leader", "new_leader")  # no leader is stopped within a transaction there
        return
    with pytest.raises(Violation, match="more at work"):
        explore(world, "former_leader", "new_leader", preemptions=1)


def test_without_lock_and_index_a_simulation_gets_two_live_launches(
    launching: LaunchingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlocked(monkeypatch)
    launching.database.write(lambda c: c.execute(text("DROP INDEX launches_one_live")) and None)
    if launching.database.embedded:
        explore(launching, "former_launch", "new_launch")
        return
    with pytest.raises(Violation, match="two live launches"):
        explore(launching, "former_launch", "new_launch", preemptions=1)


def test_without_the_state_that_an_admission_believes_a_cancelled_simulation_is_launched(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = simulations._moving

    def believing_nothing(changed: frozenset[str], *, again: bool) -> Any:
        statement = moving(changed, again=again)
        statement._where_criteria = statement._where_criteria[:1] + statement._where_criteria[2:]
        return statement

    monkeypatch.setattr(simulations, "_moving", believing_nothing)
    with pytest.raises(Violation, match="a cancelled simulation goes on"):
        explore(world, "former_leader", "owner", preemptions=2)
