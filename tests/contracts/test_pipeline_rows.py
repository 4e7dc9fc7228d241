"""Pipelines in SQL, on each engine: when their job is due, which steps equal others, and what their runs tell."""

import json

import pytest

from common.errors import Conflict, UnknownPipeline
from core.domain.access.scopes import PLATFORM
from core.domain.pipelines.pipeline_states import PipelineState
from core.store import pipelines as store
from core.store.claims import HeldClaim
from core.store.database import Connection, Database
from core.store.pipelines import PIPELINES
from core.store.tables import comparisons, simulations

STEP = {"kind": "submission", "document": "{}", "waits_for": "[]"}


def create(database: Database, id: str, *states: str) -> None:
    def write(c: Connection) -> None:
        PIPELINES.add(c, id, {"project": "default"}, 1.0)
        rows = [{"pipeline_id": id, "ordinal": n, "name": f"s{n}", "state": s, **STEP} for n, s in enumerate(states)]
        store.add_steps(c, rows)

    database.write(write)


def submit(database: Database, pipeline: str, ordinal: int, run: str, state: str) -> None:
    """Let a step run as a simulation in a state."""
    texts = ("project", "spec", "provenance", "dataset", "runtime", "model", "digest")
    row = {"id": run, "state": state, "created_at": 1.0, "summary": "{}", **dict.fromkeys(texts, "{}")}

    def write(c: Connection) -> None:
        step = store.steps_of(c, [pipeline])[ordinal]
        c.execute(simulations.insert().values(**row))
        store.change_step(c, step, 1.0, state="running", run_id=run)

    database.write(write)


def is_due(database: Database, id: str) -> bool:
    with database.read() as c:
        return id in PIPELINES.claims.due(c, 100.0)


@pytest.mark.parametrize(
    ("states", "due"),
    [
        (["ready", "waiting"], True),
        (["waiting", "waiting"], True),  # an attempt was killed before it saw what follows
        (["succeeded", "failed"], True),  # before the end was written
    ],
)
def test_a_pipeline_is_due_while_something_can_be_done_for_it(database: Database, states: list[str], due: bool) -> None:
    create(database, "p", *states)
    assert is_due(database, "p") is due


def test_a_pipeline_waits_for_its_runs_and_is_due_at_their_ends(database: Database) -> None:
    create(database, "p", "ready", "waiting")
    submit(database, "p", 0, "run", "running")
    assert not is_due(database, "p")
    database.write(lambda c: c.execute(simulations.update().values(state="succeeded")))
    assert is_due(database, "p")
    with database.read() as c:
        step, other = store.steps_of(c, ["p"])
        assert (step.run_state, step.comparison_state, other.run_state) == ("succeeded", None, None)
        assert store.pipeline_of(c, "run") == "p" and store.pipeline_of(c, "other") is None
    database.write(lambda c: c.execute(simulations.update().values(deleted_at=2.0)))
    with database.read() as c:
        assert store.steps_of(c, ["p"])[0].run_state is None


def test_a_comparison_that_has_not_ended_keeps_a_pipeline_waiting(database: Database) -> None:
    create(database, "p", "running")
    texts = ("project", "spec", "dataset", "dataset_version", "dataset_digest")
    row = {"id": "c", "state": "running", "reference": 0, "scenarios": 1, "created_at": 1.0}

    def write(c: Connection) -> None:
        c.execute(comparisons.insert().values(**row, **dict.fromkeys(texts, "{}")))
        store.change_step(c, store.steps_of(c, ["p"])[0], 1.0, run_id="c", kind="comparison")

    database.write(write)
    assert not is_due(database, "p")
    database.write(lambda c: c.execute(comparisons.update().values(state="finished")))
    assert is_due(database, "p")
    with database.read() as c:
        assert store.steps_of(c, ["p"])[0].run_state == "finished"


def test_the_newest_complete_step_whose_run_is_there_is_equal(database: Database) -> None:
    for pipeline in ("p1", "p2", "p3"):
        create(database, pipeline, "ready")
        submit(database, pipeline, 0, f"run-{pipeline}", "succeeded")
        state = "failed" if pipeline == "p3" else "succeeded"

        def end(c: Connection, pipeline: str = pipeline, state: str = state) -> None:
            store.change_step(c, store.steps_of(c, [pipeline])[0], 1.0, state=state, digest="sha256:d")

        database.write(end)
    with database.read() as c:
        equal = store.equal_step(c, PLATFORM, "sha256:d")
        assert equal is not None and equal.run_id == "run-p2" and store.equal_step(c, PLATFORM, "sha256:e") is None
    gone = simulations.update().where(simulations.c.id == "run-p2").values(deleted_at=2.0)
    database.write(lambda c: c.execute(gone))
    with database.read() as c:
        equal = store.equal_step(c, PLATFORM, "sha256:d")
        assert equal is not None and equal.run_id == "run-p1"


def test_a_change_of_a_step_that_has_changed_meanwhile_is_refused(database: Database) -> None:
    create(database, "p", "ready")
    with database.read() as c:
        [seen] = store.steps_of(c, ["p"])
    database.write(lambda c: store.change_step(c, seen, 1.0, state="running"))
    with pytest.raises(Conflict):
        database.write(lambda c: store.require_step(c, seen))


def test_pages_are_newest_first_and_a_removed_pipeline_leaves_nothing(database: Database) -> None:
    for id in ("p1", "p2", "p3"):
        create(database, id, "ready")
    database.write(lambda c: PIPELINES.move(c, "p2", PipelineState.SUCCEEDED, 5.0, reason=None))
    with database.read() as c:
        assert [row.id for row in store.page(c, PLATFORM, states=(), after=None, limit=2)] == ["p3", "p2"]
        assert [row.id for row in store.page(c, PLATFORM, states=["running"], after="p3", limit=2)] == ["p1"]
        assert PIPELINES.find(c, PLATFORM, "p2").ended_at == 5.0 and PIPELINES.versions(c, ["p2"]) == {"p2": 2}
    database.write(lambda c: store.remove(c, "p2"))
    with database.read() as c, pytest.raises(UnknownPipeline):
        assert store.steps_of(c, ["p2"]) == []
        PIPELINES.find(c, PLATFORM, "p2")


def test_reasons_of_waiting_are_of_pipelines_that_run(database: Database) -> None:
    create(database, "p", "ready")
    claim = HeldClaim("p", "attempt")

    def wait(c: Connection, reason: str | None) -> None:
        PIPELINES.claims.take(c, claim, 9.0, 1.0)
        PIPELINES.pause(c, claim, 1.0, wait=2.0, failures=3, reason=reason)

    database.write(lambda c: wait(c, "waits"))
    with database.read() as c:
        row = PIPELINES.find(c, PLATFORM, "p")
        assert (row.reason, row.failures) == ("waits", 3)
        assert [PIPELINES.claims.due(c, now) for now in (2.0, 3.5)] == [[], ["p"]]
    database.write(lambda c: PIPELINES.move(c, "p", PipelineState.FAILED, 2.0, reason="the end"))
    database.write(lambda c: wait(c, None))
    with database.read() as c:
        assert PIPELINES.find(c, PLATFORM, "p").reason == "the end"
        assert json.loads(store.steps_of(c, ["p"])[0].waits_for) == []
