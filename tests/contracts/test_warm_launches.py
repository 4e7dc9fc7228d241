"""Launches that wait for their simulations, as the dispatcher deals with them: used once, replaced, lost by nobody."""

from collections.abc import Mapping

import pytest

from core.domain.ids import hashed
from core.domain.launches import Launch, LaunchStatus, Phase, WarmLaunch
from tests.conftest import Clock
from tests.contracts.test_dispatcher import House, Wilful
from tests.contracts.test_dispatcher import house as house  # a fixture is found by its name in here
from workers.executors.base import ActiveLaunch, KeepsWarmLaunches, Missed
from workers.managed_executor import ManagedExecutor

TOKEN = "minted before"


class Warmed(Wilful):
    """A place where launches wait: those in ``reserve``, by id."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.reserve: list[str] = []
        self.marked: dict[str, ActiveLaunch] = {}
        self.looks = 0
        self.gone = False

    def maintain_warm_pool(self, taken: Mapping[str, ActiveLaunch]) -> bool:
        self._answer()
        self.looks += 1
        self.marked = {id: one for id, one in taken.items() if id.startswith("warm")}
        for id in self.marked:
            self.begin(id)
        return bool(self.reserve)

    def begin(self, id: str) -> None:
        """Let a launch run that nobody has submitted."""
        self._statuses.setdefault(id, LaunchStatus(id=id, phase=Phase.RUNNING))

    def take_warm_launch(self, launch: Launch) -> WarmLaunch | None:
        return WarmLaunch(self.reserve.pop(0), hashed(TOKEN)) if self.reserve else None

    def submit(self, launch: Launch) -> None:
        if self.gone and not launch.token:
            raise Missed("it is gone")
        super().submit(launch)


@pytest.fixture
def warmed(house: House) -> Warmed:
    place = Warmed("east")
    assert isinstance(place, KeepsWarmLaunches) and not isinstance(house.west, KeepsWarmLaunches)
    house.east = house.sites["east"].executor = place
    return place


def submit(house: House) -> str:
    return house.submit(placement={"executor": "east"})


def play(house: House, id: str) -> None:
    """Play a simulation to its end with the token that only its runners know."""
    known = house.platform.leases.authenticate(id, TOKEN)
    house.play(Launch(**{**_blank(id), "simulation_id": known.simulation}))
    house.end(known.simulation)


def _blank(id: str) -> dict[str, object]:
    words = dict.fromkeys(("url", "runtime", "format", "dataset", "version", "model_digest", "model_key"), "")
    return {"id": id, "attempt": 1, "workers": 1, "token": TOKEN, **words}


def test_a_warm_launch_is_taken_and_the_pool_is_refilled_soon(house: House, warmed: Warmed) -> None:
    house.until(lambda: warmed.looks)
    warmed.reserve = ["warm1"]
    first, second = submit(house), submit(house)
    at, launch = house.launch(first)
    assert (at, launch.id, launch.token) == (warmed, "warm1", "")
    before = warmed.looks
    house.until(lambda: warmed.looks > before)
    play(house, "warm1")
    _, launch = house.launch(second)
    assert launch.id != "warm1" and launch.token, "there was no other"
    house.play(launch)
    house.end(second)
    assert "warm1" not in warmed.launches


def test_a_missed_warm_launch_is_replaced_by_a_new_launch_at_once(house: House, warmed: Warmed) -> None:
    warmed.gone, warmed.reserve = True, ["warm1", "warm2"]
    id = submit(house)
    house.until(lambda: any(one.simulation_id == id for one in warmed.launches.values()))
    _, launch = house.launch(id)
    assert launch.token and not warmed.reserve
    house.play(launch)
    house.end(id)


def test_a_dispatcher_that_dies_before_it_labels_a_warm_launch_loses_nothing(house: House, warmed: Warmed) -> None:
    id = submit(house)
    dispatch = house.dispatch
    (busy,) = dispatch.snapshot().busy
    assert dispatch.admit(busy, "east", ready=True)
    (busy,) = dispatch.snapshot().busy
    assert dispatch.launch(busy, lambda _: WarmLaunch("warm1", hashed(TOKEN))) is not None  # and here it is killed
    warmed.begin("warm1")
    house.until(lambda: warmed.marked)
    assert warmed.marked == {"warm1": ActiveLaunch(id, 1, 2)}
    play(house, "warm1")


def test_a_warm_launch_offered_again_after_its_end_is_not_used(house: House, warmed: Warmed) -> None:
    warmed.reserve = ["warm1"]
    submit(house)
    house.until(lambda: "warm1" in warmed.launches)
    play(house, "warm1")
    warmed.reserve = ["warm1"]
    again = submit(house)
    _, launch = house.launch(again)
    assert launch.id != "warm1"
    house.play(launch)
    house.end(again)


def test_an_incomplete_warm_pool_is_refilled_with_exponential_back_off(
    house: House, warmed: Warmed, clock: Clock
) -> None:
    at = ManagedExecutor(house.sites["east"].config, warmed, clock=clock)

    def pause() -> float:
        began = clock.now
        while at.due_warm_pool is None:
            clock.now += 0.5
        return clock.now - began

    pauses = []
    for _ in range(17):
        at.refilled(False)
        assert at.due_warm_pool is None
        pauses.append(pause())
    assert pauses == [1] * 10 + [2, 4, 8, 16, 32, 60, 60]
    at.refill_soon()
    assert pause() == 1
    at.refilled(True)
    assert pause() == 60
    at.refilled(False)
    assert pause() == 1
    at.close()
