"""Looks on each database engine: asked by one process, answered by a runner through another, and recorded."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text, update

from common.errors import (
    LooksNotAllowed,
    PlatformError,
    RunnerSilent,
    TaskNotAtWork,
    UnknownSimulation,
    UnknownTaskFile,
)
from core.domain.access.scopes import LOCAL_CALLER, Caller
from core.notifications.change_notifier import ChangeNotifier
from core.notifications.local_notifier import LocalNotifier
from core.services.scheduling.runner_looks import RunnerLooks
from core.services.simulations import looks as service
from core.services.simulations.looks import LookedAt, TaskLooks
from core.store import results
from core.store.database import Database
from core.store.tables import simulations
from runtimes.harness.runner.runner_api_messages import LookAnswer, LookedEntry, LookRequest, pack_look, unpack_look
from tests.contracts.test_leases import SIMULATION, begin

SPEC = {"gang": {"size": 2}}


class TwoProcesses:
    """The services of an API process and of a runner API process, which share a database alone."""

    def __init__(self, database: Database) -> None:
        self.database = database
        api, runner_api = LocalNotifier(), LocalNotifier()
        self.looks = TaskLooks(database, api, ChangeNotifier(database, api, interval=0.02), allowed=True, slots=8)
        changes = ChangeNotifier(database, runner_api, interval=0.02)
        self.runner = RunnerLooks(database, runner_api, changes, allowed=True)
        self._threads: list[threading.Thread] = []

    def answer(self, answer: Callable[[LookRequest], tuple[LookAnswer, bytes]]) -> None:
        """Answer the next look in a thread, as a runner does."""

        def work() -> None:
            for look in self.runner.take(SIMULATION):
                seen, data = unpack_look(pack_look(*answer(look)))
                self.runner.answer(SIMULATION, seen, data)

        self._threads.append(threading.Thread(target=work))
        self._threads[-1].start()

    def close(self) -> None:
        for thread in self._threads:
            thread.join()


@pytest.fixture
def two(database: Database) -> Iterator[TwoProcesses]:
    begin(database, 100)
    database.write(lambda c: c.execute(update(simulations).values(spec=json.dumps(SPEC))))
    processes = TwoProcesses(database)
    yield processes
    processes.close()


ME = replace(LOCAL_CALLER, address="me")


def read(looks: TaskLooks, path: str = "logs/0", caller: Caller = ME, **options: Any) -> LookedAt:
    return looks.read(caller, SIMULATION, 0, path, **{"offset": 0, "length": 100, "wait": 0.0, **options})


def test_a_look_is_answered_by_the_runner_and_recorded(two: TwoProcesses) -> None:
    two.answer(lambda look: (LookAnswer(look.id, start=look.offset, size=9), b"residuals"))
    seen = read(two.looks, offset=3)
    assert (seen.data, seen.answer.start, seen.answer.size) == (b"residuals", 3, 9)
    entry = LookedEntry("0", "file", 9, 1.5)
    two.answer(lambda look: (LookAnswer(look.id, entries=[entry]), b""))
    assert two.looks.list(ME, SIMULATION, 0, "logs").answer.entries == [entry]
    two.answer(lambda look: (LookAnswer(look.id, size=9), b"abc"))
    read(two.looks)
    two.answer(lambda look: (LookAnswer(look.id, size=9), b"abc"))
    read(two.looks, caller=replace(ME, address="another"))
    records = two.looks.records(LOCAL_CALLER, SIMULATION, 0, 10)
    assert {(row.kind, row.path, row.looked_by, row.times, row.bytes) for row in records} == {
        ("read", "logs/0", "me", 2, 12),
        ("list", "logs", "me", 1, 0),
        ("read", "logs/0", "another", 1, 3),
    }
    assert all(0 < row.first_at <= row.last_at for row in records)
    assert two.looks.records(LOCAL_CALLER, SIMULATION, 2, 10) == records[2:]
    with two.database.read() as c:
        assert c.scalar(text("SELECT count(*) FROM look_requests")) == 0


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"problem": "it is not a regular file"}, UnknownTaskFile),
        ({"problem": "the task is not at work", "ended": True}, TaskNotAtWork),
    ],
)
def test_a_look_that_sees_nothing_says_why_and_is_recorded(
    two: TwoProcesses, answer: dict[str, Any], error: type[PlatformError]
) -> None:
    two.answer(lambda look: (LookAnswer(look.id, **answer), b""))
    with pytest.raises(error, match=answer["problem"]):
        read(two.looks)
    [record] = two.looks.records(LOCAL_CALLER, SIMULATION, 0, 10)
    assert (record.times, record.bytes) == (1, 0)


def test_a_runner_that_does_not_answer_is_given_up_and_its_late_answer_is_dropped(
    two: TwoProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PATIENCE", 0.1)
    with pytest.raises(RunnerSilent):
        read(two.looks)
    assert two.runner.take(SIMULATION, timeout=0.0) == ()
    two.runner.answer(SIMULATION, LookAnswer("gone"), b"late")
    with two.database.read() as c:
        assert c.scalar(text("SELECT count(*) FROM look_requests")) == 0


def test_a_runner_answers_looks_of_its_own_simulation_only(two: TwoProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "PATIENCE", 1.0)

    def as_another(look: LookRequest) -> tuple[LookAnswer, bytes]:
        two.runner.answer("another", LookAnswer(look.id), b"forged")
        return LookAnswer("unknown"), b""

    two.answer(as_another)
    with pytest.raises(RunnerSilent):
        read(two.looks)
    assert two.runner.take("another", timeout=0.0) == ()


def test_a_look_is_taken_once(two: TwoProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    def answer(look: LookRequest) -> tuple[LookAnswer, bytes]:
        taken.extend(other.id for other in two.runner.take(SIMULATION, timeout=0.0))
        return LookAnswer(look.id), b"x"

    two.answer(answer)
    assert read(two.looks).data == b"x" and taken == []


def test_only_running_programs_that_a_runner_leads_are_looked_into(two: TwoProcesses, database: Database) -> None:
    with pytest.raises(UnknownSimulation):
        two.looks.list(ME, "none", 0, "")
    for spec in (
        {},
        {"gang": {"size": 2, "operator": "trainer", "runtime_ref": "x"}},
        {"gang": {"size": 1, "image": "x"}},
    ):
        database.write(lambda c, spec=spec: c.execute(update(simulations).values(spec=json.dumps(spec))))
        with pytest.raises(TaskNotAtWork, match="a runner leads"):
            read(two.looks)
    database.write(lambda c: c.execute(update(simulations).values(spec=json.dumps(SPEC), state="queued")))
    with pytest.raises(TaskNotAtWork, match="is queued"):
        read(two.looks)
    assert two.looks.records(LOCAL_CALLER, SIMULATION, 0, 10) == []


def test_without_the_operators_permission_there_are_no_looks(database: Database) -> None:
    begin(database, 100)
    database.write(lambda c: c.execute(update(simulations).values(spec=json.dumps(SPEC))))
    notifier = LocalNotifier()
    changes = ChangeNotifier(database, notifier)
    with pytest.raises(LooksNotAllowed):
        read(TaskLooks(database, notifier, changes, allowed=False, slots=8))
    runner = RunnerLooks(database, notifier, changes, allowed=False)
    assert not runner.are_waiting(SIMULATION) and runner.take(SIMULATION) == ()


def test_a_deleted_simulation_leaves_no_records_of_looks(two: TwoProcesses, database: Database) -> None:
    two.answer(lambda look: (LookAnswer(look.id), b"x"))
    read(two.looks)
    database.write(lambda c: results.forget(c, SIMULATION, 100))
    with database.read() as c:
        assert c.scalar(text("SELECT count(*) FROM looks")) == 0
