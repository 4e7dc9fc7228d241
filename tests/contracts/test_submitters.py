"""Submitters on both databases: what goes on by itself submits in the name of a user only while he may himself."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import update

from core.domain.access.scopes import LOCAL_CALLER, Caller, Scope
from core.domain.comparisons.comparison_requests import ComparisonRequest
from core.domain.pipelines.pipeline_requests import PipelineRequest, StepRequest
from core.store import accounts, comparisons, pipelines, sign_ins
from core.store.comparisons import COMPARISONS
from core.store.database import Connection, Database
from core.store.pipelines import PIPELINES
from core.store.tables import comparisons as comparison_table
from core.store.tables import pipelines as pipeline_table
from tests.api.answers import MODEL
from tests.contracts.test_dispatcher import DispatcherRig, dispatcher_rig

KINDS = ("comparison", "pipeline")
PROJECT = "default"
#: Names of submitters that no row of a user has.
WITHOUT_ROWS = ("", "192.0.2.1", "2001:db8::1", "system:serviceaccount:ci:gate", "unknown")


@pytest.fixture
def rig(tmp_path: Path, database: Database) -> Iterator[DispatcherRig]:
    with dispatcher_rig(tmp_path, database) as rig:
        for name in ("mine", "other"):
            rig.platform.files.models.add(LOCAL_CALLER, (MODEL, name.encode()), filename="model.py", name=name)
        yield rig


def caller(name: str) -> Caller:
    return Caller(Scope(PROJECT), user=name)


def add_user(database: Database, name: str, role: str | None, *, operator: bool = False, service: bool = False) -> None:
    values = {"state": "active", "operator": int(operator), "created_by": "operator", "created_at": 1.0}
    values["service"] = PROJECT if service else None

    def write(c: Connection) -> None:
        assert accounts.add_user(c, name, values)
        if role is not None:
            accounts.put_member(c, PROJECT, name, role, 1.0)

    database.write(write)


def begun(rig: DispatcherRig, kind: str, user: str) -> str:
    """Create a comparison, or a pipeline of two steps, of which nothing was submitted yet."""
    if kind == "comparison":
        asked = ComparisonRequest(models=("mine", "other"), dataset="car_street")
        return str(rig.platform.comparisons.comparisons.create(caller(user), asked)[0]["id"])
    steps = [
        StepRequest(name=name, kind="submission", document={"dataset": "noop", "model": name})
        for name in ("mine", "other")
    ]
    return rig.platform.pipelines.pipelines.create(caller(user), PipelineRequest(steps=steps))[0]


def advance(rig: DispatcherRig, kind: str, id: str) -> None:
    if kind == "comparison":
        rig.platform.jobs.comparison_batches.advance(id)
    else:
        rig.platform.pipelines.pipeline_steps.advance(id)


def retry(rig: DispatcherRig, kind: str, id: str, user: str) -> None:
    if kind == "comparison":
        rig.platform.comparisons.comparisons.retry(caller(user), id)
    else:
        rig.platform.pipelines.pipelines.retry(caller(user), id)


def state(rig: DispatcherRig, kind: str, id: str) -> tuple[str, str]:
    """Return the state of a row, and all the reasons that it has, also of its parts."""
    with rig.platform.database.read() as c:
        parts: Sequence[comparisons.ComparedModelRow] | Sequence[pipelines.PipelineStepRow]
        if kind == "comparison":
            row, parts = COMPARISONS.find(c, Scope(PROJECT), id), comparisons.models_of(c, [id])
            return row.state, " | ".join(filter(None, [row.reason, *(part.reason for part in parts)]))
        found, parts = PIPELINES.find(c, Scope(PROJECT), id), pipelines.steps_of(c, [id])
        return found.state, " | ".join(filter(None, [found.reason, *(part.reason for part in parts)]))


def submitters(database: Database) -> list[str]:
    """Return in whose names the simulations were submitted."""
    with database.read() as c:
        return [str(name) for name in c.exec_driver_sql("SELECT submitted_by FROM simulations ORDER BY id").scalars()]


def make_due(database: Database, kind: str) -> None:
    table = comparison_table if kind == "comparison" else pipeline_table
    database.write(lambda c: c.execute(update(table).values(not_before=0.0)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lost", ["left", "no member", "viewer"])
def test_what_a_user_has_begun_submits_nothing_once_he_may_not(rig: DispatcherRig, kind: str, lost: str) -> None:
    database = rig.platform.database
    add_user(database, "ada", "maintainer")
    id = begun(rig, kind, "ada")

    def lose(c: Connection) -> None:
        if lost == "left":
            assert accounts.leave(c, "ada", 2.0)
        elif lost == "no member":
            assert accounts.drop_member(c, PROJECT, "ada", 2.0)
        else:
            accounts.put_member(c, PROJECT, "ada", "viewer", 2.0)

    database.write(lose)
    advance(rig, kind, id)
    advance(rig, kind, id)
    ended, reasons = state(rig, kind, id)
    assert ended == "failed" and "ada may not submit in default any more" in reasons, reasons
    assert submitters(database) == []


@pytest.mark.parametrize("kind", KINDS)
def test_who_tries_it_again_is_its_submitter_from_then_on(rig: DispatcherRig, kind: str) -> None:
    database = rig.platform.database
    add_user(database, "ada", "submitter")
    add_user(database, "bob", "maintainer")
    id = begun(rig, kind, "ada")
    database.write(lambda c: accounts.leave(c, "ada", 2.0))
    advance(rig, kind, id)
    retry(rig, kind, id, "bob")
    advance(rig, kind, id)
    assert state(rig, kind, id) == ("running", "") and submitters(database) == ["bob", "bob"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_user_may_submit_again_stays_his_if_another_tries_it_again(rig: DispatcherRig, kind: str) -> None:
    database = rig.platform.database
    add_user(database, "ada", "submitter")
    add_user(database, "bob", "maintainer")
    id = begun(rig, kind, "ada")
    database.write(lambda c: accounts.put_member(c, PROJECT, "ada", "viewer", 2.0))
    advance(rig, kind, id)
    database.write(lambda c: accounts.put_member(c, PROJECT, "ada", "submitter", 3.0))
    retry(rig, kind, id, "bob")
    advance(rig, kind, id)
    assert submitters(database) == ["ada", "ada"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_work_of_who_is_away_waits_until_he_is_back(rig: DispatcherRig, kind: str) -> None:
    database = rig.platform.database
    add_user(database, "ada", "submitter")
    id = begun(rig, kind, "ada")
    database.write(lambda c: sign_ins.set_away(c, "ada", 2.0))
    advance(rig, kind, id)
    waiting, reasons = state(rig, kind, id)
    assert waiting == "running" and reasons.startswith("waits: the identity provider of ada"), reasons
    assert submitters(database) == []
    database.write(lambda c: sign_ins.set_away(c, "ada", None))
    make_due(database, kind)
    advance(rig, kind, id)
    assert state(rig, kind, id) == ("running", "") and submitters(database) == ["ada", "ada"]


@pytest.mark.parametrize("kind", KINDS)
def test_who_leaves_while_he_is_away_is_not_waited_for(rig: DispatcherRig, kind: str) -> None:
    database = rig.platform.database
    add_user(database, "ada", "submitter")
    id = begun(rig, kind, "ada")
    database.write(lambda c: sign_ins.set_away(c, "ada", 2.0))
    advance(rig, kind, id)
    database.write(lambda c: accounts.leave(c, "ada", 3.0))
    make_due(database, kind)
    advance(rig, kind, id)
    assert state(rig, kind, id)[0] == "failed"


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_needs_no_membership_and_a_service_account_is_a_member(rig: DispatcherRig, kind: str) -> None:
    database = rig.platform.database
    add_user(database, "olga", None, operator=True)
    add_user(database, "default/nightly", "submitter", service=True)
    for name in ("olga", "default/nightly"):
        advance(rig, kind, begun(rig, kind, name))
    assert submitters(database) == ["olga", "olga", "default/nightly", "default/nightly"]
    last = begun(rig, kind, "default/nightly")
    database.write(lambda c: accounts.leave(c, "default/nightly", 2.0))
    advance(rig, kind, last)
    assert state(rig, kind, last)[0] == "failed"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WITHOUT_ROWS)
def test_rows_of_who_has_no_account_go_on(rig: DispatcherRig, kind: str, name: str) -> None:
    add_user(rig.platform.database, "ada", None)
    advance(rig, kind, begun(rig, kind, name))
    assert submitters(rig.platform.database) == [name, name]


def test_what_runs_goes_on_when_its_user_leaves_and_nothing_follows_it(rig: DispatcherRig) -> None:
    database = rig.platform.database
    add_user(database, "ada", "submitter")
    first = StepRequest(name="first", kind="submission", document={"dataset": "noop", "model": "mine"})
    then = StepRequest(name="then", kind="submission", document={"dataset": "noop", "model": "other"}, after=["first"])
    id = rig.platform.pipelines.pipelines.create(caller("ada"), PipelineRequest(steps=[first, then]))[0]
    advance(rig, "pipeline", id)
    database.write(lambda c: accounts.leave(c, "ada", 2.0))
    advance(rig, "pipeline", id)
    assert state(rig, "pipeline", id) == ("running", "") and submitters(database) == ["ada"]
    database.write(lambda c: c.exec_driver_sql("UPDATE simulations SET state='succeeded', summary='{}'"))
    advance(rig, "pipeline", id)
    with database.read() as c:
        steps = [(step.name, step.state) for step in pipelines.steps_of(c, [id])]
    assert steps == [("first", "succeeded"), ("then", "failed")]
    ended, reasons = state(rig, "pipeline", id)
    assert ended == "failed" and "ada may not submit in default any more" in reasons
    assert submitters(database) == ["ada"]
