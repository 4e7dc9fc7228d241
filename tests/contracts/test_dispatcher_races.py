"""A dispatcher that dies, is late or is refused at the worst moment leaves no simulation behind."""

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from core.domain.launches import Launch
from core.domain.states import State
from core.services.scheduling.snapshots import LiveLaunch
from core.store import launches
from errors import PlatformError, Unsupported
from tests.contracts.test_dispatcher import House
from tests.contracts.test_dispatcher import house as house  # a fixture is found by its name in here
from workers.executors.base import Missed


def lent(house: House, id: str) -> LiveLaunch:
    """Return a simulation's launch as a dispatcher's look has it."""
    return next(one for one in house.dispatch.snapshot().launches if one.simulation == id)


def test_a_simulation_whose_only_launch_has_ended_gets_another(house: House) -> None:
    id = house.submit()
    _, launch = house.launch(id)
    house.play(launch, 10)
    house.dispatch.end_launch(lent(house, id))
    _, other = house.launch(id)
    assert other.id != launch.id
    house.play(other)
    house.end(id)
    assert len(house.results(id)) == 40


def test_the_end_of_a_launch_and_the_requeue_of_its_simulation_are_one_transaction(house: House) -> None:
    id = house.submit()
    _, launch = house.launch(id)
    house.play(launch, 10)
    refusal = "BEFORE UPDATE ON simulations WHEN NEW.state='queued' BEGIN SELECT RAISE(ABORT, 'refused'); END"
    house.platform.database.write(lambda c: c.execute(text(f"CREATE TRIGGER refusal {refusal}")))
    with pytest.raises(IntegrityError, match="refused"):
        house.dispatch.requeue(lent(house, id), "its processes vanished")
    assert house.living == {launch.id}
    house.platform.database.write(lambda c: c.execute(text("DROP TRIGGER refusal")))
    house.play(launch)
    house.end(id)
    assert house.platform.simulations.get(id).attempt == 1


def test_a_stale_snapshot_does_not_end_a_launch_that_has_started_since(house: House) -> None:
    id = house.submit()
    place, launch = house.launch(id)
    house.play(launch, 10)
    stale = lent(house, id)
    place.end(launch.id, 1, "its node is gone")
    house.until(lambda: launch.id not in house.living)
    _, other = house.launch(id)
    house.play(other, 10)
    house.dispatch.requeue(stale, "it was slow to answer")
    assert (house.living, house.state(id)) == ({other.id}, State.RUNNING)
    assert house.platform.simulations.get(id).attempt == 2


@pytest.mark.parametrize(
    ("refusal", "ends"),
    [(Missed("its pod has just gone"), False), (Unsupported("It may not be marked."), True)],
    ids=["it is missed", "it is refused"],
)
def test_a_simulation_that_leased_before_its_submission_failed_gets_a_launch_or_fails(
    house: House, refusal: Exception, ends: bool
) -> None:
    refused: list[str] = []
    for place in (house.east, house.west):
        submit = place.submit

        def first_at_work(launch: Launch, submit: Any = submit) -> None:
            if not refused:
                refused.append(launch.id)
                house.platform.leases.lease(house.platform.leases.authenticate(launch.id, launch.token), "d", None)
                raise refusal
            submit(launch)

        place.submit = first_at_work  # type: ignore[method-assign]
    id = house.submit()
    if ends:
        assert isinstance(refusal, PlatformError)
        house.until(lambda: house.state(id) is State.FAILED)
        assert not house.living
    else:
        _, other = house.launch(id)
        assert other.id not in refused
        house.play(other)
        house.end(id)


def test_a_launch_that_cannot_be_deleted_does_not_block_its_executor(house: House) -> None:
    kept = house.submit(placement={"executor": "east"})
    place, launch = house.launch(kept)
    cancel = place.cancel

    def forbidden(id: str) -> None:
        if id == launch.id:
            raise PermissionError("jobsets.jobset.x-k8s.io is forbidden: it may not delete")
        cancel(id)

    place.cancel = forbidden  # type: ignore[method-assign]
    house.platform.simulations.cancel(kept)
    house.until(lambda: house.state(kept) is State.CANCELLED)
    house.sites["east"].search_orphans_soon()
    for _ in range(3):
        id = house.submit(placement={"executor": "east"})
        _, other = house.launch(id)
        house.play(other)
        house.end(id)
    assert launch.id in place.launches
    assert house.sites["east"].healthy


@pytest.mark.parametrize("cancelled", [False, True], ids=["runs", "is cancelled"])
def test_a_launch_of_an_executor_that_was_removed_continues_elsewhere_or_ends(house: House, cancelled: bool) -> None:
    id = house.submit()
    place, launch = house.launch(id)
    house.play(launch, 10)
    rest = [site for site in house.sites.values() if site.name != place.name]
    house.configure(*rest)
    if cancelled:
        house.platform.simulations.cancel(id)
        house.until(lambda: house.state(id) is State.CANCELLED)
        assert not house.living
        return
    elsewhere, other = house.launch(id)
    while elsewhere is place:
        house.dispatcher.step()
        elsewhere, other = house.launch(id)
    house.play(other)
    house.end(id)
    assert len(house.results(id)) == 40


def test_a_launch_ends_once(house: House) -> None:
    id = house.submit()
    _, launch = house.launch(id)
    database = house.platform.database
    assert database.write(lambda c: launches.end(c, launch.id))
    assert not database.write(lambda c: launches.end(c, launch.id))
