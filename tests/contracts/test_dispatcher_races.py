"""Races of the dispatcher: a death, a delay or a refusal at any moment leaves no simulation without a launch."""

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from common.errors import PlatformError, Unsupported
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.launches import Launch
from core.domain.scheduling.states import State
from core.services.scheduling.snapshots import LiveLaunch
from core.store import launches
from tests.contracts.test_dispatcher import DispatcherRig
from tests.contracts.test_dispatcher import rig as rig  # a fixture
from workers.executors.base import Missed


def launch_in_snapshot(rig: DispatcherRig, id: str) -> LiveLaunch:
    """Return a simulation's launch from the dispatcher's snapshot."""
    return next(launch for launch in rig.dispatch.snapshot().launches if launch.simulation == id)


def test_a_simulation_whose_only_launch_has_ended_gets_another(rig: DispatcherRig) -> None:
    id = rig.submit()
    _, launch = rig.launch(id)
    rig.play(launch, 10)
    rig.dispatch.end_launch(launch_in_snapshot(rig, id))
    _, other = rig.launch(id)
    assert other.id != launch.id
    rig.play(other)
    rig.end(id)
    assert len(rig.results(id)) == 40


def test_the_end_of_a_launch_and_the_requeue_of_its_simulation_are_one_transaction(rig: DispatcherRig) -> None:
    id = rig.submit()
    _, launch = rig.launch(id)
    rig.play(launch, 10)
    refusal = "BEFORE UPDATE ON simulations WHEN NEW.state='queued' BEGIN SELECT RAISE(ABORT, 'refused'); END"
    rig.platform.database.write(lambda c: c.execute(text(f"CREATE TRIGGER refusal {refusal}")))
    with pytest.raises(IntegrityError, match="refused"):
        rig.dispatch.requeue(launch_in_snapshot(rig, id), "its processes vanished")
    assert rig.active_launches == {launch.id}
    rig.platform.database.write(lambda c: c.execute(text("DROP TRIGGER refusal")))
    rig.play(launch)
    rig.end(id)
    assert rig.platform.submissions.simulations.get(LOCAL_CALLER, id).attempt == 1


def test_a_stale_snapshot_does_not_end_a_launch_that_has_started_since(rig: DispatcherRig) -> None:
    id = rig.submit()
    executor, launch = rig.launch(id)
    rig.play(launch, 10)
    stale = launch_in_snapshot(rig, id)
    executor.end(launch.id, 1, "its node failed")
    rig.until(lambda: launch.id not in rig.active_launches)
    _, other = rig.launch(id)
    rig.play(other, 10)
    rig.dispatch.requeue(stale, "its status was late")
    assert (rig.active_launches, rig.state(id)) == ({other.id}, State.RUNNING)
    assert rig.platform.submissions.simulations.get(LOCAL_CALLER, id).attempt == 2


@pytest.mark.parametrize(
    ("refusal", "ends"),
    [(Missed("its pod was just deleted"), False), (Unsupported("It may not be labelled."), True)],
    ids=["it is missed", "it is refused"],
)
def test_a_simulation_that_leased_before_its_submission_failed_gets_a_launch_or_fails(
    rig: DispatcherRig, refusal: Exception, ends: bool
) -> None:
    refused: list[str] = []
    for executor in (rig.east, rig.west):
        submit = executor.submit

        def lease_and_refuse(launch: Launch, submit: Any = submit) -> None:
            if not refused:
                refused.append(launch.id)
                leases = rig.platform.scheduling.leases
                leases.lease(leases.authenticate(launch.id, launch.token), "d", None)
                raise refusal
            submit(launch)

        executor.submit = lease_and_refuse  # type: ignore[method-assign]
    id = rig.submit()
    if ends:
        assert isinstance(refusal, PlatformError)
        rig.until(lambda: rig.state(id) is State.FAILED)
        assert not rig.active_launches
    else:
        _, other = rig.launch(id)
        assert other.id not in refused
        rig.play(other)
        rig.end(id)


def test_a_launch_that_cannot_be_deleted_does_not_block_its_executor(rig: DispatcherRig) -> None:
    cancelled = rig.submit(placement={"executor": "east"})
    executor, launch = rig.launch(cancelled)
    cancel = executor.cancel

    def forbidden(id: str) -> None:
        if id == launch.id:
            raise PermissionError("jobsets.jobset.x-k8s.io is forbidden: it may not delete")
        cancel(id)

    executor.cancel = forbidden  # type: ignore[method-assign]
    rig.platform.submissions.simulations.cancel(LOCAL_CALLER, cancelled)
    rig.until(lambda: rig.state(cancelled) is State.CANCELLED)
    rig.managed["east"].search_orphans_soon()
    for _ in range(3):
        id = rig.submit(placement={"executor": "east"})
        _, other = rig.launch(id)
        rig.play(other)
        rig.end(id)
    assert launch.id in executor.launches
    assert rig.managed["east"].healthy


@pytest.mark.parametrize("cancelled", [False, True], ids=["runs", "is cancelled"])
def test_a_launch_of_an_executor_that_was_removed_continues_elsewhere_or_ends(
    rig: DispatcherRig, cancelled: bool
) -> None:
    id = rig.submit()
    executor, launch = rig.launch(id)
    rig.play(launch, 10)
    remaining = [managed for name, managed in rig.managed.items() if name != executor.name]
    rig.configure(*remaining)
    if cancelled:
        rig.platform.submissions.simulations.cancel(LOCAL_CALLER, id)
        rig.until(lambda: rig.state(id) is State.CANCELLED)
        assert not rig.active_launches
        return
    second_executor, other = rig.launch(id)
    while second_executor is executor:
        rig.dispatcher.step()
        second_executor, other = rig.launch(id)
    rig.play(other)
    rig.end(id)
    assert len(rig.results(id)) == 40


def test_a_launch_ends_once(rig: DispatcherRig) -> None:
    id = rig.submit()
    _, launch = rig.launch(id)
    database = rig.platform.database
    assert database.write(lambda c: launches.end(c, launch.id, 0.0))
    assert not database.write(lambda c: launches.end(c, launch.id, 0.0))
