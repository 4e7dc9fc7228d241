"""Ends of projects on both databases: what races with a closing is cancelled, a deletion goes on where it stopped."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from common.errors import ProjectClosed
from core.domain.access.audit import AuditEntry, AuditFilter
from core.domain.access.identities import ProjectState
from core.domain.access.scopes import LOCAL_CALLER, Scope
from core.domain.submissions.submission import Submission
from core.services.project_ends import ProjectEnds
from core.store import accounts, audit, models
from core.store.database import Connection, Database
from core.store.recording import recorded_request
from tests.api.answers import MODEL
from tests.contracts.test_dispatcher import DispatcherRig, dispatcher_rig

RED, BLUE = (replace(LOCAL_CALLER, scope=Scope(name)) for name in ("red", "blue"))


@pytest.fixture
def rig(tmp_path: Path, database: Database) -> Iterator[DispatcherRig]:
    with dispatcher_rig(tmp_path, database) as rig:
        for caller in (RED, BLUE):
            name = caller.scope.owner
            database.write(lambda c, name=name: accounts.add_project(c, name, "", database.now(c)))  # type: ignore[misc]
            rig.platform.files.models.add(caller, (MODEL,), filename="model.py", name="mine")
        yield rig


@pytest.fixture
def ends(rig: DispatcherRig) -> ProjectEnds:
    return rig.platform.access.project_ends


def submit(rig: DispatcherRig, caller: object) -> str:
    submission = Submission(dataset="noop", runtime="python", model="mine", scenarios={"range": [0, 40]}, workers=2)
    return rig.platform.submissions.simulations.submit(caller, submission)[0].id  # type: ignore[arg-type]


def count(rig: DispatcherRig, condition: str) -> object:
    with rig.platform.database.read() as c:
        return c.execute(text(f"SELECT count(*) FROM {condition}")).scalar()


def test_what_is_submitted_while_a_project_closes_is_refused_or_cancelled(
    rig: DispatcherRig, ends: ProjectEnds
) -> None:
    together = threading.Barrier(9)
    submitted: list[str] = []

    def submit_some() -> None:
        together.wait()
        with suppress(ProjectClosed):
            for _ in range(20):
                submitted.append(submit(rig, RED))

    threads = [threading.Thread(target=submit_some) for _ in range(8)]
    for thread in threads:
        thread.start()
    together.wait()
    ends.close(RED)
    for thread in threads:
        thread.join()
    other = submit(rig, BLUE)
    with pytest.raises(ProjectClosed):
        submit(rig, RED)
    ends.sweep()
    for id in submitted:
        rig.platform.jobs.finalization.collect(id)
    assert count(rig, "simulations WHERE project='red' AND state='cancelled'") == len(submitted)
    assert count(rig, f"simulations WHERE id='{other}' AND state='queued'") == 1


def test_what_runs_ends_before_its_project_is_removed(rig: DispatcherRig, ends: ProjectEnds) -> None:
    id = submit(rig, RED)
    _, launch = rig.launch(id)
    rig.play(launch, 10)
    ends.close(RED)
    ends.delete(RED)
    ends.sweep()
    rig.until(lambda: launch.id not in rig.active_launches)
    assert count(rig, "projects WHERE name='red' AND state='deleted'") == 1
    rig.platform.jobs.finalization.collect(id)
    ends.sweep()
    rig.platform.jobs.deletion.remove(id)
    ends.sweep()
    assert count(rig, "projects WHERE name='red' AND state='removed'") == 1
    assert count(rig, "models WHERE project='blue'") == 1


def test_each_deletion_is_in_the_audit_log_once_as_that_of_who_has_deleted_the_project(
    rig: DispatcherRig, ends: ProjectEnds
) -> None:
    asked = AuditEntry(act="delete_project", project="red", user="olga", subject="projects/red")
    ids = [
        rig.platform.files.models.add(RED, (MODEL + b"#" * number,), filename="model.py", name=f"of-{number}").id
        for number in range(3)
    ]
    ends.close(RED)
    with recorded_request(asked):
        ends.delete(RED)
    ends.sweep()
    ends.sweep()
    with rig.platform.database.read() as c:
        rows = audit.page(c, Scope("red"), AuditFilter(act="delete_project"), after=None, limit=50)
    assert {(row.user, row.project, row.outcome) for row in rows} == {("olga", "red", "done")}
    subjects = [row.subject for row in rows]
    assert len(subjects) == len(set(subjects)) and {f"models/{id}" for id in ids} < set(subjects)
    assert "projects/red" in subjects and count(rig, "models WHERE project='red'") == 0


def test_a_deletion_goes_on_where_it_was_killed(
    rig: DispatcherRig, ends: ProjectEnds, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        rig.platform.files.models.add(RED, (MODEL + b"#" * number,), filename="model.py", name=f"of-{number}")
    ends.close(RED)
    ends.delete(RED)
    deleted: list[str] = []
    delete = models.delete

    def delete_two(c: Connection, scope: Scope, id: str) -> bool:
        if len(deleted) == 2:
            raise SystemExit  # as a process that is ended here
        deleted.append(id)
        return delete(c, scope, id)

    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(models, "delete", delete_two)
        ends.sweep()
    left = count(rig, "models WHERE project='red'")
    assert isinstance(left, int) and 0 < left < 4
    sweeps = [threading.Thread(target=ends.sweep) for _ in range(3)]
    for sweep in sweeps:
        sweep.start()
    for sweep in sweeps:
        sweep.join()
    assert count(rig, "models WHERE project='red'") == 0
    assert count(rig, f"projects WHERE name='red' AND state='{ProjectState.REMOVED}'") == 1
    assert count(rig, "models WHERE project='blue'") == 1
