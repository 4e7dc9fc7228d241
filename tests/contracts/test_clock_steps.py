"""A clock that is set: claims, leases, pauses and leaders expire after their terms, and nothing ends by the step."""

import time

import pytest
from sqlalchemy import Float, insert, text, update

from common.errors import StoreUnavailable
from core.domain.access.scopes import LOCAL_CALLER, PLATFORM
from core.domain.scheduling.ranges import Lease
from core.domain.scheduling.states import State
from core.store import clock_steps, datasets, leaders, simulations
from core.store import leases as ranges_of
from core.store.database import Connection, Database
from core.store.leases import LeasingWorker, Stage
from core.store.tables import dataset_versions, metadata, uploads
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
    row = {
        "id": "v",
        "project": "default",
        "name": "n",
        "state": "registering",
        "source": "{}",
        "created_at": clock.now,
    }
    row |= {"claim": "dead", "claim_until": clock.now + 9.0}
    database.write(lambda c: c.execute(insert(dataset_versions).values(**row)) and None)
    clock.now -= HOUR
    database.write(lambda c: clock_steps.rewind(c, clock.now))
    clock.now += 10.0
    with database.read() as c:
        assert datasets.CLAIMS.due(c, clock.now) == ["v"]


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
        row = simulations.find(c, PLATFORM, "s1")
    assert (row.claim_until, row.not_before) == (clock.now + 8.0, clock.now + 600.0)


def test_every_column_that_holds_a_time_is_classified(database: Database) -> None:
    columns = {
        f"{table.name}.{column.name}"
        for table in metadata.sorted_tables
        for column in table.columns
        if isinstance(column.type, Float)
    }
    assert columns == clock_steps.TIMES.keys()


def test_statements_of_every_table_are_valid_and_change_nothing_without_rows(database: Database) -> None:
    database.write(lambda c: clock_steps.shift(c, -HOUR, 1.8e9, 2.0))
    database.write(lambda c: clock_steps.shift(c, HOUR, 1.8e9, 2.0))


@pytest.mark.parametrize("step", [-HOUR, -800.0, -30.0, 30.0, 800.0, HOUR])
def test_a_known_step_is_taken_out_of_pauses_terms_and_ages(queued: Database, clock: Clock, step: float) -> None:
    def times() -> list[float]:
        with queued.read() as c:
            row = simulations.find(c, PLATFORM, "s1")
            [lease] = c.execute(text("SELECT heartbeat_at FROM ranges")).all()
            [expiry] = c.scalars(text("SELECT expires_at FROM uploads")).all()
        return [row.not_before, row.claim_until, row.started_at, lease.heartbeat_at, expiry]

    began = clock.now
    change = update(rows).values(not_before=began + 2.0, claim="a", claim_until=began + 8.0, started_at=began - 5000.0)
    queued.write(lambda c: c.execute(change) and None)
    lease = queued.write(
        lambda c: ranges_of.lend(c, Stage("s1.0", 9, 0, 1), LeasingWorker("l", "w", None, 1, 10.0), began - 4.0)
    )
    assert lease is not None
    upload = {"id": "u", "project": "default", "kind": "whole", "created_at": began, "expires_at": began + 9000.0}
    queued.write(lambda c: c.execute(insert(uploads).values(**upload)) and None)
    before = times()
    clock.now += 1.0 + step
    queued.write(lambda c: clock_steps.shift(c, step, clock.now, 1.0))
    assert times() == pytest.approx([at + step for at in before])


def test_what_was_written_after_the_step_is_not_taken_for_earlier(queued: Database, clock: Clock) -> None:
    clock.now += HOUR
    queued.write(
        lambda c: ranges_of.lend(c, Stage("s1.0", 9, 0, 1), LeasingWorker("l", "w", None, 1, 10.0), clock.now - 0.5)
    )
    queued.write(lambda c: clock_steps.shift(c, HOUR, clock.now, 1.0))
    with queued.read() as c:
        assert list(c.scalars(text("SELECT heartbeat_at FROM ranges"))) == [clock.now - 0.5]


def test_a_step_ahead_ends_no_simulation_by_its_timeout_and_no_upload(
    rig: DispatcherRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = rig.submit(timeout=1800)
    _, launch = rig.launch(id)
    rig.play(launch, 10)
    upload = rig.platform.files.uploads.create(LOCAL_CALLER, 8)
    rig.platform.files.uploads.append(LOCAL_CALLER, upload.id, 0, iter([b"half"]))
    with rig.platform.database.read() as c:
        ttl = c.scalar(text("SELECT expires_at-created_at FROM uploads"))
    rig.dispatcher.step()
    step = ttl + HOUR
    monkeypatch.setattr(rig.platform.database, "_clock", lambda: time.time() + step)
    rig.dispatcher.step()
    assert (
        rig.platform.files.uploads.sweep() == 0 and rig.platform.files.uploads.get(LOCAL_CALLER, upload.id).offset == 4
    )
    assert rig.state(id) is State.RUNNING
    rig.play(launch)
    rig.end(id)


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("step", [-30.0, -800.0, HOUR])
def test_a_pause_is_as_long_as_it_was_whatever_the_clock_does(
    rig: DispatcherRig, monkeypatch: pytest.MonkeyPatch, step: float, refused: bool
) -> None:
    id = rig.submit()
    rig.dispatcher.step()
    paused = text("UPDATE simulations SET state='queued', not_before=:at, executor=NULL WHERE id=:i")
    rig.platform.database.write(lambda c: c.execute(paused, {"i": id, "at": time.time() + 500.0}) and None)
    rig.dispatcher.step()
    monkeypatch.setattr(rig.platform.database, "_clock", lambda: time.time() + step)
    if refused:  # the first pass after the step writes nothing
        with monkeypatch.context() as outage, pytest.raises(StoreUnavailable):
            outage.setattr(rig.platform.database, "write", _refuse)
            rig.dispatcher.step()
    rig.dispatcher.step()
    with rig.platform.database.read() as c:
        left = simulations.find(c, PLATFORM, id).not_before - rig.platform.database.now(c)
    assert 400.0 < left <= 500.0


def _refuse(*_: object, **__: object) -> None:
    raise StoreUnavailable("the database does not answer")


def test_a_dispatcher_notices_the_step_and_goes_on(rig: DispatcherRig, monkeypatch: pytest.MonkeyPatch) -> None:
    running, other, waiting = rig.submit(), rig.submit(), rig.submit()
    _, launch = rig.launch(running)
    rig.launch(other)
    identity = rig.platform.scheduling.leases.authenticate(launch.id, launch.token)
    assert isinstance(rig.platform.scheduling.leases.lease(identity, "dead", None), Lease)
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
    assert heartbeat <= now and paused <= now + 5.0, "a pause is as long as it was"
    rig.play(launch)  # the tasks of the dead worker are leased again once its lease has expired
    rig.end(running)
