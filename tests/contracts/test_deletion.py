"""Deletion of simulations: interrupted at any step, begun again, and then nothing of it is left; and orphans."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from common.errors import UnknownSimulation
from core.domain.access.scopes import LOCAL_CALLER
from core.services.due_jobs import DueJobs
from core.services.platform import Platform
from core.services.simulations import deletion
from core.services.simulations.deletion import PREFIXES, Deletion
from core.store.tables import metadata
from tests.contracts.test_dispatcher import DispatcherRig
from tests.contracts.test_dispatcher import rig as rig  # a fixture

TABLES = ("stages", "ranges", "segments", "artifacts", "logs", "events", "launches", "simulations")


class Killed(BaseException):
    """The job was killed: no code of it runs afterwards."""


class DyingAtStep:
    """Passes calls on to an object, and dies at the n-th call of any of some methods."""

    def __init__(self, target: Any, methods: set[str], step: list[int]) -> None:
        self._target, self._methods, self._step = target, methods, step

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if name not in self._methods:
            return method

        def call(*arguments: Any, **options: Any) -> Any:
            self._step[0] -= 1
            if self._step[0] < 0:
                raise Killed
            return method(*arguments, **options)

        return call


@pytest.fixture
def ended(rig: DispatcherRig) -> str:
    """A simulation that has ended, with results in several objects, and a log."""
    id = rig.submit()
    _, launch = rig.launch(id)
    identity = rig.platform.scheduling.leases.authenticate(launch.id, launch.token)
    rig.play(launch, 10)
    rig.play(launch)
    rig.platform.scheduling.leases.log(identity, "evaluator 0", b"a line\n")
    rig.platform.store.put(f"replays/{id}/3.json", (b"{}",))
    rig.end(id)
    return id


def objects(platform: Platform, id: str) -> list[str]:
    return [key for prefix in PREFIXES for key in platform.store.list(prefix) if f"/{id}/" in key]


def rows(platform: Platform, id: str) -> dict[str, int]:
    """Return the number of rows of a simulation in each table that has some."""
    counts = {}
    with platform.database.read() as c:
        for table in metadata.tables.values():
            for column in ("simulation_id", "stage_id", "id"):
                if table.name in TABLES and column in table.c:
                    query = text(f"SELECT count(*) FROM {table.name} WHERE {column} LIKE :id")
                    counts[table.name] = counts.get(table.name, 0) + (c.scalar(query, {"id": f"{id}%"}) or 0)
    return {name: count for name, count in counts.items() if count}


def test_a_deletion_that_is_killed_at_any_step_is_finished_by_the_next_attempt(
    rig: DispatcherRig, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = rig.platform
    monkeypatch.setattr(deletion, "ROWS", 3)
    assert len(objects(platform, ended)) >= 4 and set(rows(platform, ended)) >= set(TABLES) - {"artifacts"}
    platform.submissions.simulations.delete(LOCAL_CALLER, ended)
    with pytest.raises(UnknownSimulation):
        platform.submissions.simulations.get(LOCAL_CALLER, ended)
    for number in range(200):
        step = [number]
        job = Deletion(
            DyingAtStep(platform.database, {"write", "read"}, step),  # type: ignore[arg-type]
            DyingAtStep(platform.store, {"delete", "list"}, step),  # type: ignore[arg-type]
        )
        try:
            job.remove(ended)
        except Killed:
            present = rows(platform, ended)
            assert "simulations" in present, "the row that names the deletion is deleted last"
            if objects(platform, ended):
                assert "stages" in present, "the rows that name the objects outlive them"
            release = text("UPDATE simulations SET claim=NULL, claim_until=0")  # the claim of a killed job expires
            platform.database.write(lambda c: c.execute(release) and None)  # noqa: B023 - run at once
        else:
            break
    assert number > 10 and objects(platform, ended) == [] and rows(platform, ended) == {}
    rig.dispatcher.step()
    assert not DueJobs(rig.platform.database).of("delete")


def test_the_dispatcher_enqueues_deletions_and_does_not_wait_for_them(rig: DispatcherRig, ended: str) -> None:
    rig.platform.submissions.simulations.delete(LOCAL_CALLER, ended)
    rig.platform.notifier.jobs.clear()  # type: ignore[attr-defined]
    rig.until(lambda: ("delete", ended) in rig.platform.notifier.jobs)  # type: ignore[attr-defined]
    assert objects(rig.platform, ended)


def test_results_that_a_retry_inherited_stay_with_it(rig: DispatcherRig, ended: str) -> None:
    before = rig.results(ended)
    retry, _ = rig.platform.submissions.simulations.retry(LOCAL_CALLER, ended)
    rig.platform.submissions.simulations.delete(LOCAL_CALLER, ended)
    rig.platform.jobs.deletion.remove(ended)
    rig.play(rig.launch(retry.id)[1])  # nothing is left to do
    rig.end(retry.id)
    assert rig.results(retry.id) == before
    rig.platform.submissions.simulations.delete(LOCAL_CALLER, retry.id)
    rig.platform.jobs.deletion.remove(retry.id)
    assert objects(rig.platform, ended) == objects(rig.platform, retry.id) == []


@pytest.fixture
def orphans(rig: DispatcherRig, ended: str) -> Iterator[list[str]]:
    """Objects that a process left that was killed before it wrote their rows."""
    keys = [
        f"results/{ended}/000000000000-late",
        f"results/{ended}/all-half",
        f"logs/{ended}/late",
        "results/01aaaaaaaaaaaaaaaaaaaaaaaa/000000000000-of-a-deleted-simulation",
        "logs/01aaaaaaaaaaaaaaaaaaaaaaaa/x",
        "replays/01aaaaaaaaaaaaaaaaaaaaaaaa/0.json",
        "results/01aaaaaaaaaaaaaaaaaaaaaaaa/cut-00",
        "logs/01aaaaaaaaaaaaaaaaaaaaaaaa/archive-00",
    ]
    for key in keys:
        rig.platform.store.put(key, (b"orphan",))
    yield keys


def test_objects_that_no_row_refers_to_are_removed_and_all_others_stay(
    rig: DispatcherRig, ended: str, orphans: list[str]
) -> None:
    rig.platform.store.put(f"results/{ended}/cut-11", (b"made on demand",))
    running = rig.submit()
    _, launch = rig.launch(running)
    rig.play(launch, 10)
    rig.platform.store.put(f"results/{running}/000000000010-to-be-recorded", (b"x",))
    before = {key for prefix in PREFIXES for key in rig.platform.store.list(prefix)}
    assert rig.platform.jobs.deletion.remove_orphans(grace=3600.0) == 5, (
        "those of the simulation that ended just now stay"
    )
    assert rig.platform.jobs.deletion.remove_orphans(grace=-1.0) == 3
    after = {key for prefix in PREFIXES for key in rig.platform.store.list(prefix)}
    assert before - after == set(orphans)
    assert len(rig.results(ended)) == 40
