"""Leadership of dispatchers that share a PostgreSQL: one acts, however long its passes last; the others stand by."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from common.errors import Conflict
from core.store import leaders
from core.store.database import Database
from tests.contracts.test_dispatcher import DispatcherRig, dispatcher_rig
from tests.databases import postgres_url
from tests.waiting import until


@pytest.fixture
def database(postgres: str, request: pytest.FixtureRequest) -> Iterator[Database]:
    database = Database(postgres_url(postgres, request.node.nodeid))
    yield database
    database.close()


@pytest.fixture
def leading(database: Database, tmp_path: Path) -> Iterator[DispatcherRig]:
    """A dispatcher that runs in a thread and leads."""
    with dispatcher_rig(tmp_path, database) as rig:
        stop = threading.Event()
        thread = threading.Thread(target=rig.dispatcher.run, args=(stop,))
        thread.start()
        until(lambda: rig.dispatch.epoch is not None and has_beaten(rig))
        yield rig
        stop.set()
        thread.join()


def has_beaten(rig: DispatcherRig) -> bool:
    return (rig.run_dir / "dispatch.beat").exists()


def elect_another(rig: DispatcherRig) -> None:
    """Give the leadership to another dispatcher, as its election does after the term of a starved leader."""
    elected = "UPDATE leaders SET holder = 'another', epoch = epoch + 1, until = until + 5"
    rig.platform.database.write(lambda c: c.execute(text(elected)))


def until_beaten_twice(rig: DispatcherRig) -> None:
    """Wait for two more marks of life."""
    for _ in range(2):
        (rig.run_dir / "dispatch.beat").unlink()
        until(lambda: has_beaten(rig), message="the dispatcher shows no sign of life")


def test_a_dispatcher_that_lost_its_leadership_stands_by_and_writes_nothing(
    leading: DispatcherRig, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        elect_another(leading)
        until(lambda: "another dispatcher leads" in caplog.text)
        until_beaten_twice(leading)  # or its supervisor would kill it
    # A thread of an executor may still be at a pass that began before.
    with pytest.raises(Conflict, match="Another dispatcher leads now"):
        leading.dispatch.report_health({})
    assert [record for record in caplog.records if record.exc_info] == []
    assert caplog.text.count("another dispatcher leads") == 1


def test_a_dispatcher_that_stood_by_leads_again_after_the_term_of_the_other(leading: DispatcherRig) -> None:
    before = leading.dispatch.epoch
    assert before is not None
    elect_another(leading)
    leading.platform.database.write(lambda c: c.execute(text("UPDATE leaders SET until = 0")))
    until(lambda: leading.dispatch.epoch == before + 2)
    leading.dispatch.report_health({})


def test_a_pass_that_lasts_longer_than_a_term_costs_no_leadership(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workers.leadership import Leadership

    with Leadership(database, "first", term=0.6) as first, Leadership(database, "second", term=0.6) as second:
        epoch = first.take()
        assert epoch is not None
        renewed = "SELECT until FROM leaders WHERE holder = 'first'"

        def ends_at() -> float:
            with database.read() as c:
                return float(c.scalar(text(renewed)) or 0.0)

        begun = ends_at()
        until(lambda: ends_at() > begun + 1.8)  # three terms, in which the first dispatcher asks for nothing
        assert second.take() is None
        assert first.take() == epoch
    assert ends_at() > 0


def test_a_platform_without_a_leading_dispatcher_says_so(database: Database) -> None:
    from core.services.standstill import LAPSE, Standstill

    def problem() -> str | None:
        with database.read() as c:
            return Standstill(database, lambda: None).problem(c)

    assert problem() is None, "none has led so far: it is being started"
    database.write(lambda c: leaders.take(c, "dispatch", "a", 10.0, database.now(c)))
    assert problem() is None
    ended = text("UPDATE leaders SET until = until - :lapse - 11")
    database.write(lambda c: c.execute(ended, {"lapse": LAPSE}) and None)
    assert "no dispatcher has led for" in str(problem())
