"""Rows with documents that cannot be read: the simulation ends alone, with the reason, and the others go on."""

import logging

import pytest
from sqlalchemy import text

from core.domain.access.scopes import LOCAL_CALLER, PLATFORM
from core.domain.scheduling.states import State
from core.store import datasets, scheduling_changes, simulations
from core.store.database import Connection
from core.store.simulations import SimulationRow
from tests.contracts.test_dispatcher import DispatcherRig
from tests.contracts.test_dispatcher import rig as rig

#: Texts that no version has stored, by column.
DAMAGES = [
    ("provenance", "{"),
    ("provenance", "{}"),
    ("provenance", '{"dataset": 1}'),
    ("spec", "[]"),
    ("spec", '{"workers": "four"}'),
    ("spec", '{"gang": {"size": "two"}}'),
    ("bundle", "[1]"),
]


def damage(rig: DispatcherRig, id: str, column: str, stored: str) -> None:
    """Store a text in a column of a simulation, as damage of the database does."""

    def write(c: Connection) -> None:
        c.execute(text(f"UPDATE simulations SET {column}=:stored WHERE id=:id"), {"id": id, "stored": stored})
        scheduling_changes.add(c, id)

    rig.platform.database.write(write)


def row_of(rig: DispatcherRig, id: str) -> SimulationRow:
    with rig.platform.database.read() as c:
        return simulations.find(c, PLATFORM, id)


def ended(rig: DispatcherRig, id: str) -> bool:
    return row_of(rig, id).ended_at is not None


@pytest.mark.parametrize(("column", "stored"), DAMAGES)
def test_a_queued_simulation_that_cannot_be_read_ends_with_the_reason_and_the_next_one_is_launched(
    rig: DispatcherRig, caplog: pytest.LogCaptureFixture, column: str, stored: str
) -> None:
    broken, other = rig.submit(), rig.submit()
    damage(rig, broken, column, stored)
    with caplog.at_level(logging.ERROR):
        _, launch = rig.launch(other)
        rig.until(lambda: ended(rig, broken))
    row = row_of(rig, broken)
    assert row.state == State.ERRORED and "cannot be read" in (row.reason or "")
    assert [broken in record.getMessage() for record in caplog.records] == [True]  # once, and no pass has failed
    rig.play(launch)
    rig.end(other)


@pytest.mark.parametrize(("column", "stored"), DAMAGES)
def test_a_running_simulation_that_cannot_be_read_ends_and_its_launch_with_it(
    rig: DispatcherRig, column: str, stored: str
) -> None:
    broken, other = rig.submit(), rig.submit()
    _, launch = rig.launch(broken)
    rig.play(launch, 4)
    damage(rig, broken, column, stored)
    rig.until(lambda: ended(rig, broken) and launch.id not in rig.active_launches)
    assert row_of(rig, broken).state == State.ERRORED
    rig.play(rig.launch(other)[1])
    rig.end(other)


@pytest.mark.parametrize(("column", "stored"), DAMAGES)
def test_a_simulation_that_cannot_be_read_is_shown_cancelled_and_deleted(
    rig: DispatcherRig, column: str, stored: str
) -> None:
    service = rig.platform.submissions.simulations
    broken, other = rig.submit(), rig.submit()
    damage(rig, broken, column, stored)
    listed, _ = service.list(LOCAL_CALLER)
    assert [each.id for each in listed] == [other, broken]
    assert service.get(LOCAL_CALLER, broken).model.name == "mine"
    assert service.cancel(LOCAL_CALLER, broken).state in {State.CANCELLING, State.CANCELLED}
    rig.until(lambda: ended(rig, broken))
    assert service.get(LOCAL_CALLER, broken).state is State.CANCELLED
    service.delete(LOCAL_CALLER, broken)
    rig.platform.jobs.deletion.remove(broken)
    assert [each.id for each in service.list(LOCAL_CALLER)[0]] == [other]


@pytest.mark.parametrize(
    ("column", "stored"), [*DAMAGES[:6], ("headline", "["), ("progress", "x"), ("labels", "[]"), ("headline", "[1]")]
)
def test_a_view_says_which_document_cannot_be_read(rig: DispatcherRig, column: str, stored: str) -> None:
    broken = rig.submit()
    damage(rig, broken, column, stored)
    assert "cannot be read" in (rig.platform.submissions.simulations.get(LOCAL_CALLER, broken).reason or "")


def test_a_finished_simulation_whose_provenance_cannot_be_read_ends_without_a_summary(rig: DispatcherRig) -> None:
    broken = rig.submit()
    rig.play(rig.launch(broken)[1])
    damage(rig, broken, "provenance", "{")
    rig.end(broken, State.ERRORED)
    assert rig.platform.submissions.simulations.get(LOCAL_CALLER, broken).tasks.done == 40


def test_a_running_simulation_without_a_stage_ends_alone(rig: DispatcherRig) -> None:
    broken, other = rig.submit(), rig.submit()
    _, launch = rig.launch(broken)
    rig.platform.database.write(lambda c: c.execute(text("UPDATE simulations SET state='running'")))
    rig.platform.database.write(lambda c: c.execute(text("DELETE FROM stages WHERE simulation_id=:id"), {"id": broken}))
    damage(rig, broken, "bundle", "{}")  # which can be read
    rig.until(lambda: ended(rig, broken) and launch.id not in rig.active_launches)
    assert "stage" in (row_of(rig, broken).reason or "")
    rig.play(rig.launch(other)[1])


def test_poisoned_tasks_of_a_simulation_that_cannot_be_read_hold_up_no_other(rig: DispatcherRig) -> None:
    broken, other = rig.submit(scenarios={"range": [0, 1]}), rig.submit(scenarios={"range": [0, 1]})
    leases = rig.platform.scheduling.leases
    for launch in [rig.launch(broken)[1], rig.launch(other)[1]]:
        leases.lease(leases.authenticate(launch.id, launch.token), "d", None)
    rig.platform.database.write(lambda c: c.execute(text("UPDATE ranges SET strikes=99, state='pending'")))
    damage(rig, broken, "provenance", "{")
    assert leases.settle() == 1
    rig.until(lambda: ended(rig, broken))


def test_datasets_in_use_are_those_of_the_simulations_that_can_be_read(rig: DispatcherRig) -> None:
    broken, other = rig.submit(), rig.submit()
    damage(rig, broken, "provenance", "{")
    damage(rig, broken, "dataset_digest", "")  # as rows of 0.2.0 have it
    assert [dataset.name for dataset in rig.platform.catalogue.datasets.in_use()] == ["noop"]
    digest = rig.platform.submissions.simulations.get(LOCAL_CALLER, other).dataset.digest
    with rig.platform.database.read() as c:
        assert digest is not None and datasets.user_of(c, PLATFORM, "noop", digest) == other
