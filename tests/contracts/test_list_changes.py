"""Contract of the changes of the list, on each engine: no change is missed, and messages are few."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from common.errors import TooManyStreams
from core.domain.access.scopes import LOCAL_CALLER, PLATFORM
from core.domain.scheduling.states import State
from core.notifications.change_notifier import ChangeNotifier, simulation_waiters
from core.notifications.local_notifier import LocalNotifier
from core.services.simulations import list_changes
from core.services.simulations.list_changes import Changes, ListChanges
from core.store import events, simulations
from core.store.database import Connection, Database
from tests.conftest import Clock
from tests.contracts.test_database import ROW


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_changes, "PAUSE", 0.02)
    monkeypatch.setattr(list_changes, "LOOK", 0.05)


def changes_of(database: Database, slots: int = 2) -> ListChanges:
    notifier = ChangeNotifier(database, LocalNotifier(), interval=0.02)
    return ListChanges(database, simulation_waiters(notifier, slots=slots))


@contextmanager
def following(changes: ListChanges, after: int | None = None) -> Iterator[Iterator[Changes | None]]:
    """Follow the changes; the stream is closed at the end, as by a client that goes away."""
    stream = changes.follow(LOCAL_CALLER, after, heartbeat=60.0)
    try:
        yield stream
    finally:
        stream.close()  # type: ignore[attr-defined]


def message(stream: Iterator[Changes | None]) -> Changes:
    received = next(stream)
    assert received is not None
    return received


def submit(database: Database, id: str, *, now: float, dry_run: int = 0) -> None:
    stage = {"id": f"{id}.0", "simulation_id": id, "ordinal": 0, "total": 1, "state": "open"}
    row = {**ROW, "id": id, "created_at": now, "dry_run": dry_run}
    database.write(lambda c: simulations.add(c, row, stage))


def cancel(c: Connection, id: str, now: float) -> None:
    simulations.move(c, id, State.QUEUED, State.CANCELLED, now, summary="{}")


def test_submissions_changes_and_deletions_are_reported_once(database: Database, clock: Clock) -> None:
    submit(database, "s1", now=clock.now)
    with following(changes_of(database)) as stream:
        assert message(stream).ids == ()
        submit(database, "s2", now=clock.now + 1)
        assert message(stream).ids == ("s2",)
        database.write(lambda c: cancel(c, "s1", clock.now + 2))
        assert message(stream).ids == ("s1",)
        database.write(lambda c: events.say(c, "s2", "progress", {}, clock.now + 3))
        assert message(stream).ids == ("s2",)
        database.write(lambda c: simulations.delete(c, PLATFORM, "s1", clock.now + 4))
        assert message(stream) == Changes(("s1",), False, int((clock.now + 4) * 1e6))


def test_a_change_that_becomes_visible_after_newer_ones_is_reported(database: Database, clock: Clock) -> None:
    with following(changes_of(database)) as stream:
        message(stream)
        submit(database, "s2", now=clock.now + 3)
        assert message(stream).ids == ("s2",)
        submit(database, "s1", now=clock.now + 1)  # its transaction took longer
        assert message(stream).ids == ("s1",)


def test_a_resumed_stream_begins_with_what_has_changed_meanwhile(database: Database, clock: Clock) -> None:
    changes = changes_of(database)
    with following(changes) as stream:
        last = message(stream).until
    clock.now += 100
    submit(database, "s1", now=clock.now - 50)
    with following(changes, last) as stream:
        assert message(stream).ids == ("s1",)
    clock.now += 2 * list_changes.RESUMABLE
    with following(changes, last) as stream:
        assert message(stream).all


def test_a_stream_after_a_time_begins_with_the_first_change(database: Database, clock: Clock) -> None:
    submit(database, "s1", now=clock.now)
    clock.now += 100
    stream = changes_of(database).follow(LOCAL_CALLER, int(clock.now * 1e6), heartbeat=0.1)
    assert next(stream) is None, "nothing has changed"
    submit(database, "s2", now=clock.now + 1)
    assert message(stream).ids == ("s2",)
    stream.close()  # type: ignore[attr-defined]


def test_more_changes_than_a_message_holds_are_announced(
    database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_changes, "MOST", 3)
    with following(changes_of(database)) as stream:
        message(stream)

        def add_many(c: Connection) -> None:
            for number in range(5):
                stage = {"id": f"t{number}", "simulation_id": f"s{number}", "ordinal": 0, "total": 1, "state": "open"}
                simulations.add(c, {**ROW, "id": f"s{number}", "created_at": clock.now + number}, stage)

        database.write(add_many)
        received = message(stream)
        assert received.ids == ("s4", "s3", "s2") and received.all
        submit(database, "s9", now=clock.now + 9)
        assert message(stream) == Changes(("s9",), False, int((clock.now + 9) * 1e6))


def test_dry_runs_are_not_reported(database: Database, clock: Clock) -> None:
    with following(changes_of(database)) as stream:
        message(stream)
        submit(database, "dry", now=clock.now + 1, dry_run=1)
        submit(database, "s1", now=clock.now + 2)
        assert message(stream).ids == ("s1",)


def test_a_quiet_stream_has_heartbeats_and_ends_when_the_waiters_are_closed(database: Database) -> None:
    notifier = ChangeNotifier(database, LocalNotifier(), interval=0.02)
    waiters = simulation_waiters(notifier, slots=1)
    stream = ListChanges(database, waiters).follow(LOCAL_CALLER, heartbeat=0.1)
    assert message(stream).ids == () and next(stream) is None and waiters.waiting == 1
    with pytest.raises(TooManyStreams):
        next(ListChanges(database, waiters).follow(LOCAL_CALLER))
    closing = threading.Timer(0.05, waiters.close)
    closing.start()
    with pytest.raises(TooManyStreams):
        while True:
            next(stream)
    closing.join()
    assert waiters.waiting == 0
