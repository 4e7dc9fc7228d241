"""Admissions of the dispatcher: preparing and loading hold no workers, and no more are in use than there are."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling import reservations
from core.domain.scheduling.launches import Launch
from core.domain.scheduling.preparation import Missing, Preparation
from core.domain.scheduling.ranges import Later, Lease
from core.domain.scheduling.states import State
from core.store import launches
from tests.contracts.test_dispatcher import DispatcherRig, rig
from workers.managed_executor import ManagedExecutor

__all__ = ["rig"]


def workers_in_use(rig: DispatcherRig) -> dict[str, int]:
    used: dict[str, int] = {}
    with rig.platform.database.read() as c:
        for row in launches.live(c):
            if row.reservation in reservations.IN_USE:
                used[row.executor] = used.get(row.executor, 0) + json.loads(row.resources)["cpu"]
    return used


@pytest.fixture
def jobs(rig: DispatcherRig) -> list[tuple[str, str]]:
    """The jobs that prepare simulations, which a test runs."""
    waiting: list[tuple[str, str]] = []
    enqueue: Callable[[str, str], Any] = rig.platform.notifier.enqueue

    def keep(job: str, id: str) -> None:
        if job in {"stage", "prepare"}:
            waiting.append((job, id))
        else:
            enqueue(job, id)

    rig.platform.notifier.enqueue = keep  # type: ignore[method-assign,assignment]
    return waiting


def on_one_executor(rig: DispatcherRig) -> None:
    """Let the dispatcher have one executor with two workers, whose launches lend them while they load."""
    rig.configure(ManagedExecutor(replace(rig.managed["east"].config, lends=True), rig.east))


def identity(rig: DispatcherRig, launch: Launch) -> Any:
    return rig.platform.scheduling.leases.authenticate(launch.id, launch.token)


def test_no_more_workers_are_in_use_than_there_are_whatever_is_prepared_meanwhile(
    rig: DispatcherRig, jobs: list[tuple[str, str]]
) -> None:
    ids = [rig.submit() for _ in range(6)]
    rig.until(lambda: {id for _, id in jobs} == set(ids))
    assert workers_in_use(rig) == {}, "a simulation that is prepared holds none"
    for _, id in reversed(jobs):
        rig.platform.scheduling.staging.stage(id)
    done: set[str] = set()
    while len(done) < len(ids):
        for _ in range(3):
            rig.dispatcher.step()
            assert all(workers <= 2 for workers in workers_in_use(rig).values())
        for executor in (rig.east, rig.west):
            for launch in list(executor.launches.values()):
                if launch.id in rig.active_launches:
                    rig.play(launch)
                    rig.end(launch.simulation_id)
                    done.add(launch.simulation_id)


def test_a_drained_executor_is_given_nothing_and_keeps_nothing_from_the_others(rig: DispatcherRig) -> None:
    executors = rig.platform.operations.executors
    executors.drain(LOCAL_CALLER, "east", reason="new kernel")
    here, anywhere = rig.submit(placement={"executor": "east"}), rig.submit()
    assert rig.launch(anywhere)[0].name == "west"
    assert (
        rig.platform.submissions.simulations.get(LOCAL_CALLER, here).reason
        == "waits for east: it is drained (new kernel)"
    )
    rig.configure(*rig.managed.values())  # another dispatcher: the drain is not its own
    for _ in range(3):
        rig.dispatcher.step()
    assert rig.state(here) is State.QUEUED
    executors.undrain(LOCAL_CALLER, "east")
    executor, launch = rig.launch(here)
    assert executor.name == "east"
    executors.drain(LOCAL_CALLER, "east")
    rig.play(launch)
    rig.end(here)
    assert rig.state(here) is State.SUCCEEDED


def test_simulations_with_slow_preparations_keep_no_others_waiting(
    rig: DispatcherRig, jobs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {rig.submit(), rig.submit(), rig.submit()}

    def missing(id: str, *_: object) -> Missing | None:
        return Missing("the packages of its model are installed", Preparation.LONG) if id in slow else None

    monkeypatch.setattr(rig.platform.scheduling.staging, "missing", missing)
    plain = [rig.submit() for _ in range(2)]
    for id in plain:
        rig.launch(id)
    assert {rig.state(id) for id in slow} == {State.STAGING}
    assert {job for job, _ in jobs} == {"prepare"}
    reasons = {rig.platform.submissions.simulations.get(LOCAL_CALLER, id).reason for id in slow}
    assert reasons == {"waits for a preparation slot: the packages of its model are installed"}


def test_the_next_in_the_queue_are_prepared_while_no_workers_are_free(
    rig: DispatcherRig, jobs: list[tuple[str, str]]
) -> None:
    running = [rig.submit(), rig.submit()]
    rig.until(lambda: len(jobs) == 2)
    for _, id in jobs:
        rig.platform.scheduling.staging.stage(id)
    held = [rig.launch(id)[1] for id in running]
    jobs.clear()
    following = rig.submit()
    rig.until(lambda: jobs)
    rig.platform.scheduling.staging.stage(following)
    waiting = rig.platform.submissions.simulations.get(LOCAL_CALLER, following)
    assert (waiting.state, waiting.attempt, waiting.reason) == (State.QUEUED, 1, "waits for 2 free workers")
    rig.play(held[0])
    rig.launch(following)
    assert len(jobs) == 1, "it is prepared once"


def test_a_quick_job_leaves_what_takes_long_to_the_other_kind(
    rig: DispatcherRig, jobs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    id = rig.submit()
    rig.until(lambda: jobs == [("stage", id)])
    long = Missing("packages are installed: python", Preparation.LONG)  # removed since the dispatcher looked
    monkeypatch.setattr(rig.platform.scheduling.staging, "missing", lambda *_: long)
    rig.platform.scheduling.staging.stage(id)
    assert jobs == [("stage", id), ("prepare", id)] and rig.state(id) is State.STAGING
    rig.platform.scheduling.staging.stage(id)
    assert rig.state(id) is State.QUEUED
    monkeypatch.undo()
    rig.launch(id)


def test_a_model_that_loads_for_long_lends_its_workers_and_waits_for_them_when_it_is_loaded(
    rig: DispatcherRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "LENDING_AGE", 0.0)
    on_one_executor(rig)
    slow, quick = rig.submit(), rig.submit()
    _, loading = rig.launch(slow)
    _, other = rig.launch(quick)
    reason = "its model is being loaded; others may use its workers meanwhile"
    assert rig.platform.submissions.simulations.get(LOCAL_CALLER, slow).reason == reason
    assert isinstance(rig.platform.scheduling.leases.lease(identity(rig, other), "d", None), Lease)
    assert workers_in_use(rig) == {"east": 2}
    for _ in range(3):
        assert isinstance(rig.platform.scheduling.leases.lease(identity(rig, loading), "d", None), Later)
        rig.dispatcher.step()
    waiting = rig.platform.submissions.simulations.get(LOCAL_CALLER, slow)
    assert (waiting.state, waiting.reason) == (State.LAUNCHING, "its model is loaded; it waits for free workers")
    third = rig.submit()
    rig.play(other)
    rig.end(quick)
    rig.until(lambda: isinstance(rig.platform.scheduling.leases.lease(identity(rig, loading), "d", None), Lease))
    assert rig.state(slow) is State.RUNNING and rig.state(third) is State.QUEUED, "it was submitted before"
    rig.until(lambda: workers_in_use(rig) == {"east": 2})


def test_a_launch_that_has_begun_lends_nothing(rig: DispatcherRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "LENDING_AGE", 0.0)
    on_one_executor(rig)
    first, second = rig.submit(), rig.submit()
    _, launch = rig.launch(first)
    assert isinstance(rig.platform.scheduling.leases.lease(identity(rig, launch), "d", None), Lease)
    for _ in range(5):
        rig.dispatcher.step()
    assert rig.state(second) is State.QUEUED
    with rig.platform.database.read() as c:
        (row,) = launches.live(c)
    assert row.reservation == reservations.Reservation.BEGUN
    late = rig.dispatch.snapshot().launches[0]
    stale = replace(late, reservation=reservations.Reservation.HELD)
    assert not rig.dispatch.reserve(stale, reservations.Reservation.LENT), "decided by an older snapshot"


def test_a_launch_grows_only_as_far_as_workers_are_free(rig: DispatcherRig) -> None:
    on_one_executor(rig)
    first, second = rig.submit(workers=1), rig.submit(workers=1)
    _, launch = rig.launch(first)
    _, other = rig.launch(second)
    rig.play(launch, 5)
    rig.play(other, 5)
    rig.platform.submissions.simulations.resize(LOCAL_CALLER, first, 2)
    for _ in range(5):
        rig.dispatcher.step()
        assert workers_in_use(rig) == {"east": 2}
    rig.play(other)
    rig.end(second)
    rig.until(lambda: rig.east.launches[launch.id].workers == 2)
