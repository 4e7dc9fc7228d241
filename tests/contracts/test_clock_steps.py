"""A clock that is set back by an hour: claims, leases, pauses and leaders expire after a term, not an hour later."""

import time

import pytest
from sqlalchemy import insert, text, update

from core.domain.ranges import Lease
from core.domain.states import State
from core.store import clock_steps, datasets, leaders, simulations
from core.store import leases as ranges_of
from core.store.database import Connection, Database
from core.store.leases import LeasingWorker, Stage
from core.store.tables import dataset_versions
from core.store.tables import simulations as rows
from tests.conftest import Clock
from tests.contracts.test_database import ROW
from tests.contracts.test_dispatcher import DispatcherRig
from tests.contracts.test_dispatcher import rig as rig  # a fixture

HOUR = 3600.0


@pytest.fixture
def queued(database: Database, clock: Clock) -> Database:
    stage = {"id": "s1.0", "simulation_id": "s1", "ordinal": 0, "total": 9, "state": "open"}
    database.write(lambda c: simulations.add(c, ROW | {"created_at": clock.now}, stage))
    return database


def test_a_leader_that_took_its_term_before_the_step_does_not_lead_for_an_hour(database: Database) -> None:
    def take(holder: str, now: float) -> int | None:
        return database.write(lambda c: leaders.take(c, "dispatch", holder, 10.0, now))

    assert take("a", HOUR) == 1
    assert take("b", HOUR + 5.0) is None
    assert take("b", 0.0) == 2, "the clock was set back"
    assert take("a", 5.0) is None and take("a", 11.0) == 3


def test_a_claim_that_was_taken_before_the_step_expires_after_a_term(queued: Database, clock: Clock) -> None:
    def claim(holder: str) -> bool:
        return queued.write(lambda c: simulations.claim(c, "s1", State.QUEUED, holder, 9.0, clock.now))

    assert claim("dead")
    clock.now -= HOUR
    queued.write(lambda c: clock_steps.rewind(c, clock.now))
    clock.now += 5.0
    assert not claim("other"), "a job that is alive has a term to renew its claim"
    clock.now += 5.0
    assert claim("other")


def test_a_registration_whose_job_died_before_the_step_is_taken_up(database: Database, clock: Clock) -> None:
    row = {"id": "v", "project": "p", "name": "n", "state": "registering", "source": "{}", "created_at": clock.now}
    row |= {"claim": "dead", "claim_until": clock.now + 9.0}
    database.write(lambda c: c.execute(insert(dataset_versions).values(**row)) and None)
    clock.now -= HOUR
    database.write(lambda c: clock_steps.rewind(c, clock.now))
    clock.now += 10.0
    with database.read() as c:
        assert datasets.registering(c, clock.now) == ["v"]


def test_a_lease_without_a_runner_expires_after_its_time_to_live(queued: Database, clock: Clock) -> None:
    worker = LeasingWorker("l", "w", None, 1, 10.0)
    stage = Stage("s1.0", 9, 0, 1)
    lease = queued.write(lambda c: ranges_of.lend(c, stage, worker, clock.now))
    assert isinstance(lease, Lease)
    clock.now -= HOUR

    def expired(c: Connection) -> list[tuple[str, int, str]]:
        clock_steps.rewind(c, clock.now)
        return ranges_of.expired(c, clock.now)

    assert queued.write(expired) == [], "a runner that is alive has a full term to heartbeat"
    clock.now += 11.0
    assert [start for _, start, _ in queued.write(expired)] == [0]


def test_what_is_within_its_term_is_left_alone(queued: Database, clock: Clock) -> None:
    change = update(rows).values(claim="a", claim_until=clock.now + 8.0, not_before=clock.now + 600.0)
    queued.write(lambda c: c.execute(change) and None)
    queued.write(lambda c: clock_steps.rewind(c, clock.now))
    with queued.read() as c:
        row = simulations.find(c, "s1")
    assert (row.claim_until, row.not_before) == (clock.now + 8.0, clock.now + 600.0)


def test_a_dispatcher_notices_the_step_and_goes_on(rig: DispatcherRig, monkeypatch: pytest.MonkeyPatch) -> None:
    running, waiting = rig.submit(), rig.submit()
    _, launch = rig.launch(running)
    identity = rig.platform.leases.authenticate(launch.id, launch.token)
    assert isinstance(rig.platform.leases.lease(identity, "dead", None), Lease)
    later = text("UPDATE simulations SET not_before=:at WHERE id=:i AND state='queued'")
    at = time.time() + 5.0
    rig.platform.database.write(lambda c: c.execute(later, {"i": waiting, "at": at}) and None)
    rig.dispatcher.step()
    monkeypatch.setattr(rig.platform.database, "_clock", lambda: time.time() - HOUR)
    rig.dispatcher.step()
    with rig.platform.database.read() as c:
        [heartbeat] = c.execute(text("SELECT heartbeat_at FROM ranges WHERE state='leased'")).scalars()
        paused = c.execute(text("SELECT not_before FROM simulations WHERE id=:i"), {"i": waiting}).scalar_one()
        now = rig.platform.database.now(c)
    assert heartbeat <= now and paused <= now
    rig.play(launch)  # the tasks of the dead worker are leased again once its lease has expired
    rig.end(running)
