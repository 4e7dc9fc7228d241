"""Warm launches in the dispatcher: each is used once and replaced, and none is lost."""

from collections.abc import Mapping

import pytest

from common.ids import hashed
from core.domain.scheduling.launches import Launch, LaunchStatus, Phase, WarmLaunch
from tests.conftest import Clock
from tests.contracts.test_dispatcher import ControllableExecutor, DispatcherRig
from tests.contracts.test_dispatcher import rig as rig  # a fixture
from tests.dispatching import unended
from workers.executors.base import ActiveLaunch, KeepsWarmLaunches, Missed
from workers.managed_executor import ManagedExecutor

TOKEN = "token of a warm launch"


class WarmExecutor(ControllableExecutor):
    """Executor whose warm launches are the ids in ``pool``."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.pool: list[str] = []
        self.labelled: dict[str, ActiveLaunch] = {}
        self.refills = 0
        self.misses_warm_launches = False

    def maintain_warm_pool(self, taken: Mapping[str, ActiveLaunch]) -> bool:
        self._answer()
        self.refills += 1
        self.labelled = {id: launch for id, launch in taken.items() if id.startswith("warm")}
        for id in self.labelled:
            self.begin(id)
        return bool(self.pool)

    def begin(self, id: str) -> None:
        """Let a launch run that was not submitted."""
        self._statuses.setdefault(id, LaunchStatus(id=id, phase=Phase.RUNNING))

    def take_warm_launch(self, launch: Launch) -> WarmLaunch | None:
        return WarmLaunch(self.pool.pop(0), hashed(TOKEN)) if self.pool else None

    def submit(self, launch: Launch) -> None:
        if self.misses_warm_launches and not launch.token:
            raise Missed("the warm launch was deleted")
        super().submit(launch)


@pytest.fixture
def warm_executor(rig: DispatcherRig) -> WarmExecutor:
    executor = WarmExecutor("east")
    assert isinstance(executor, KeepsWarmLaunches) and not isinstance(rig.west, KeepsWarmLaunches)
    rig.east = rig.managed["east"].executor = executor
    return executor


def submit(rig: DispatcherRig) -> str:
    return rig.submit(placement={"executor": "east"})


def play(rig: DispatcherRig, id: str) -> None:
    """Report all results of a simulation with the token that only its runners know."""
    identity = rig.platform.scheduling.leases.authenticate(id, TOKEN)
    rig.play(Launch(**{**_blank(id), "simulation_id": identity.simulation}))
    rig.end(identity.simulation)


def _blank(id: str) -> dict[str, object]:
    fields = dict.fromkeys(("url", "runtime", "format", "dataset", "version", "model_digest", "model_key"), "")
    return {"id": id, "attempt": 1, "workers": 1, "token": TOKEN, **fields}


def test_a_warm_launch_is_taken_and_the_pool_is_refilled_soon(rig: DispatcherRig, warm_executor: WarmExecutor) -> None:
    rig.until(lambda: warm_executor.refills)
    warm_executor.pool = ["warm1"]
    first, second = submit(rig), submit(rig)
    executor, launch = rig.launch(first)
    assert (executor, launch.id, launch.token) == (warm_executor, "warm1", "")
    before = warm_executor.refills
    rig.until(lambda: warm_executor.refills > before)
    play(rig, "warm1")
    _, launch = rig.launch(second)
    assert launch.id != "warm1" and launch.token, "the pool was empty"
    rig.play(launch)
    rig.end(second)
    assert "warm1" not in warm_executor.launches


def test_a_missed_warm_launch_is_replaced_by_a_new_launch_at_once(
    rig: DispatcherRig, warm_executor: WarmExecutor
) -> None:
    warm_executor.misses_warm_launches, warm_executor.pool = True, ["warm1", "warm2"]
    id = submit(rig)
    rig.until(lambda: any(launch.simulation_id == id for launch in warm_executor.launches.values()))
    _, launch = rig.launch(id)
    assert launch.token and not warm_executor.pool
    rig.play(launch)
    rig.end(id)


def test_a_dispatcher_that_dies_before_it_labels_a_warm_launch_loses_nothing(
    rig: DispatcherRig, warm_executor: WarmExecutor
) -> None:
    id = submit(rig)
    dispatch = rig.dispatch
    (simulation,) = unended(dispatch)
    assert dispatch.admit(simulation, "east")
    (simulation,) = unended(dispatch)
    assert dispatch.launch(simulation, lambda _: WarmLaunch("warm1", hashed(TOKEN))) is not None
    # the dispatcher is killed here
    warm_executor.begin("warm1")
    rig.until(lambda: warm_executor.labelled)
    assert warm_executor.labelled == {"warm1": ActiveLaunch(id, 1, 2)}
    play(rig, "warm1")


def test_a_warm_launch_offered_again_after_its_end_is_not_used(rig: DispatcherRig, warm_executor: WarmExecutor) -> None:
    warm_executor.pool = ["warm1"]
    submit(rig)
    rig.until(lambda: "warm1" in warm_executor.launches)
    play(rig, "warm1")
    warm_executor.pool = ["warm1"]
    second = submit(rig)
    _, launch = rig.launch(second)
    assert launch.id != "warm1"
    rig.play(launch)
    rig.end(second)


def test_an_incomplete_warm_pool_is_refilled_with_exponential_back_off(
    rig: DispatcherRig, warm_executor: WarmExecutor, clock: Clock
) -> None:
    executor = ManagedExecutor(rig.managed["east"].config, warm_executor, clock=clock)

    def pause() -> float:
        start = clock.now
        while executor.due_warm_pool is None:
            clock.now += 0.5
        return clock.now - start

    pauses = []
    for _ in range(17):
        executor.refilled(False)
        assert executor.due_warm_pool is None
        pauses.append(pause())
    assert pauses == [1] * 10 + [2, 4, 8, 16, 32, 60, 60]
    executor.refill_soon()
    assert pause() == 1
    executor.refilled(True)
    assert pause() == 60
    executor.refilled(False)
    assert pause() == 1
    executor.close()
