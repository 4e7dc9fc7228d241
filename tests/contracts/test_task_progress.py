"""Progress of a task: kept beside the sums of the dispatcher, told as an event, and only by the holder of the lease."""

import json
from pathlib import Path

import pytest

from common.errors import Conflict
from core.domain.access.scopes import PLATFORM
from core.notifications.local_notifier import LocalNotifier
from core.services.scheduling.task_files import TaskFiles
from core.services.scheduling.task_progress import TaskProgress
from core.store import events, simulations
from core.store.database import Database
from datasets.objectstore.filesystem import FilesystemStore
from runtimes.harness.runner.runner_api_messages import ProgressReport
from tests.contracts.test_leases import SIMULATION, STAGE, begin, lend


@pytest.fixture
def progress(database: Database, tmp_path: Path) -> TaskProgress:
    return TaskProgress(database, LocalNotifier(), TaskFiles(database, FilesystemStore(tmp_path / "store")))


def test_progress_of_a_task_is_kept_beside_the_sums(database: Database, progress: TaskProgress) -> None:
    begin(database, 100)
    lease = lend(database, "first", workers=1)
    sums = {"metrics": {"energy": {"count": 1}}, "score": {"mean": 2.0}, "rate": 0.5}
    database.write(lambda c: simulations.set_progress(c, SIMULATION, sums))
    progress.record(SIMULATION, ProgressReport(STAGE, lease.start, lease.fencing_token, lease.cursor, 0.25))
    with database.read() as c:
        stored = json.loads(simulations.find(c, PLATFORM, SIMULATION).progress or "{}")
        told = events.bodies(c, SIMULATION, "progress")
    assert stored["running"] == {"task": lease.cursor, "fraction": 0.25}
    assert {name: stored[name] for name in sums} == sums
    assert [body["running"] for body in told] == [stored["running"]]
    assert "score" not in told[0]


def test_progress_of_a_task_does_not_say_that_results_are_stored_again(
    database: Database, progress: TaskProgress
) -> None:
    begin(database, 100)
    lease = lend(database, "first", workers=1)
    note = {"stored": False, "message": "the store is full"}
    database.write(lambda c: events.say(c, SIMULATION, "storage", note, database.now(c)))
    progress.record(SIMULATION, ProgressReport(STAGE, lease.start, lease.fencing_token, lease.cursor, 0.25))
    with database.read() as c:
        newest = events.last_of_types(c, SIMULATION, ("storage", "progress"))
        stored = json.loads(simulations.find(c, PLATFORM, SIMULATION).progress or "{}")
    assert newest == ("storage", note)
    assert stored["running"] == {"task": lease.cursor, "fraction": 0.25}


def test_progress_of_a_lost_lease_is_refused(database: Database, progress: TaskProgress) -> None:
    begin(database, 100)
    lease = lend(database, "first", workers=1)
    with pytest.raises(Conflict, match="lost"):
        progress.record(SIMULATION, ProgressReport(STAGE, lease.start, "another", lease.cursor, 0.5))
    with database.read() as c:
        assert events.bodies(c, SIMULATION, "progress") == []
