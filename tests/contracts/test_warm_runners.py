"""Warm runners: how many the node agent keeps of a kind, and from what they are forked."""

import asyncio
import json
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from core.domain.scheduling.launches import Launch
from core.domain.scheduling.warm_depth import HALF_LIFE
from datasets.catalogue import datasets
from runtimes.catalogue import runtimes, simulators
from runtimes.formats import formats
from tests.contracts.harness_processes import SITE
from tests.contracts.test_model_server import site_of
from tests.waiting import TIMEOUT
from workers.fork_servers import ForkServer, ForkServers, Libraries, forkable
from workers.warm_runner_pool import WarmRunnerOptions, WarmRunnerPool
from workers.warm_runners import WarmKind, WarmRunner

NOOP = WarmKind(runtime="python", format="python", dataset="noop", version=datasets()["noop"].version)
CHECK = 0.02


class Clock:
    """A monotonic clock that can be moved forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


class PoolRig:
    """A pool whose kinds have their packages from the server's own environment."""

    def __init__(self, home: Path, clock: Clock, options: WarmRunnerOptions) -> None:
        self.ended: list[WarmRunner] = []
        self.clock = clock
        self.pool = WarmRunnerPool(
            home=home,
            cores=1,
            sandbox=None,
            options=options,
            on_end=self.ended.append,
            clock=clock,
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a state of the pool."""
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                await asyncio.sleep(0.005)

    async def end(self, runner: WarmRunner) -> None:
        """End a runner and wait for that."""
        runner.dismiss()
        await self.until(lambda: runner.exit is not None)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    environments = (runtimes()["python"].formats["python"].environment, simulators()["noop"])
    for digest in {environment.digest for environment in environments}:
        (tmp_path / "environments" / digest).mkdir(parents=True)
        (tmp_path / "environments" / digest / "site").symlink_to(SITE)
    (tmp_path / "run").mkdir()
    return tmp_path


def with_pool(home: Path, work: Callable[[PoolRig], Awaitable[None]], **options: int | float) -> PoolRig:
    """Run ``work`` while a pool keeps its warm runners; return the pool after its end."""
    clock = Clock()

    async def run() -> PoolRig:
        rig = PoolRig(home, clock, WarmRunnerOptions(**{"check": CHECK, **options}))
        rig.pool.prepare()
        keeping = asyncio.create_task(rig.pool.keep())
        try:
            await work(rig)
        finally:
            keeping.cancel()
            await rig.pool.close(rig.end)
        return rig

    return asyncio.run(run())


def test_a_kind_that_was_used_gets_one_warm_runner_and_a_taken_one_is_replaced(home: Path) -> None:
    async def work(rig: PoolRig) -> None:
        assert not rig.pool.kinds, "no kind has been used yet"
        rig.pool.record_use(NOOP)
        await rig.until(lambda: rig.pool.kinds == [NOOP])
        taken = rig.pool.take(NOOP, 1)
        assert taken is not None
        rig.pool.record_use(NOOP)
        await rig.until(lambda: rig.pool.kinds == [NOOP])
        await rig.end(taken)

    with_pool(home, work)


def test_an_operator_can_have_every_process_started_instead_of_forked(home: Path) -> None:
    for forks in (True, False):

        async def work(rig: PoolRig) -> None:
            rig.pool.record_use(NOOP)
            await rig.until(lambda: rig.pool.kinds == [NOOP])
            runner = rig.pool.take(NOOP, 1)
            assert runner is not None and runner.forked == forks  # noqa: B023 - called before the next round
            await rig.end(runner)

        with_pool(home, work, forks=forks)


def test_the_runner_that_was_started_first_is_taken_first(home: Path) -> None:
    async def work(rig: PoolRig) -> None:
        for _ in range(100):
            rig.pool.record_use(NOOP)
        await rig.until(lambda: len(rig.pool.kinds) > 2)
        names = [runner.name for runner in (rig.pool.take(NOOP, 1), rig.pool.take(NOOP, 1)) if runner]
        assert names == sorted(names, key=lambda name: int(name.rpartition("-")[2]))

    with_pool(home, work)


def test_a_rush_has_more_than_one_warm_runner_of_a_kind_and_they_are_given_back_afterwards(home: Path) -> None:
    async def work(rig: PoolRig) -> None:
        for _ in range(100):
            rig.pool.record_use(NOOP)
        await rig.until(lambda: len(rig.pool.kinds) > 2)
        rig.clock.ahead += 20 * HALF_LIFE
        await rig.until(lambda: len(rig.pool.kinds) == 1 and len(rig.ended) >= 2)

    with_pool(home, work)


def test_what_warm_runners_and_fork_servers_use_stays_within_the_limit_of_memory(home: Path) -> None:
    limit = 150 << 20

    async def work(rig: PoolRig) -> None:
        for _ in range(100):
            rig.pool.record_use(NOOP)
        await rig.until(lambda: bool(rig.pool.kinds))
        estimated = rig.pool.memory

        def measured() -> bool:
            rig.pool.measure()
            return rig.pool.memory not in (0, estimated)

        await rig.until(measured)
        rig.pool.refill()
        assert 0 < rig.pool.memory <= limit

    with_pool(home, work, memory=limit, check=3600)


def test_a_limit_that_no_runner_fits_into_keeps_none_and_launches_start_cold(home: Path) -> None:
    async def work(rig: PoolRig) -> None:
        rig.pool.record_use(NOOP)
        await rig.until(lambda: rig.pool.settled)
        rig.pool.refill()
        assert not rig.pool.kinds
        started = rig.pool.take(NOOP, 1)
        assert started is not None
        await rig.end(started)

    with_pool(home, work, memory=1)


def test_a_runner_is_forked_once_its_fork_servers_are_ready_and_started_before_that(home: Path) -> None:
    async def work(rig: PoolRig) -> None:
        first = rig.pool.take(NOOP, 1)
        assert first is not None and not first.forked
        rig.pool.record_use(NOOP)
        await rig.until(lambda: rig.pool.kinds == [NOOP])
        second = rig.pool.take(NOOP, 1)
        assert second is not None and second.forked
        for runner in (first, second):
            await rig.end(runner)

    with_pool(home, work)


def launch_of(project: str, **own: str) -> Launch:
    """Return a launch of a project; ``own``: what it brings."""
    fields = dict.fromkeys(("id", "simulation_id", "url", "model_digest", "model_key", "token"), "")
    return Launch(attempt=1, workers=1, project=project, **fields, **_fields(NOOP), **own)


@pytest.mark.parametrize(
    ("own", "same"), [({}, True), ({"environment": "sha256:1"}, False), ({"play": "streets"}, False)]
)
def test_a_kind_is_of_one_project_if_its_processes_load_packages_or_plants_of_one(
    own: dict[str, str], same: bool
) -> None:
    kinds = [WarmKind.of(launch_of(project, **own)) for project in ("red", "blue")]
    assert (kinds[0] == kinds[1]) == same
    assert kinds[0] == WarmKind.of(launch_of("red", **own))


def test_a_warm_runner_that_has_loaded_plants_of_a_project_is_given_to_no_other_project(home: Path) -> None:
    shutil.copytree(datasets()["noop"].folder, home / "plays" / "streets")
    red, blue = (WarmKind.of(launch_of(project, play="streets")) for project in ("red", "blue"))

    async def work(rig: PoolRig) -> None:
        rig.pool.record_use(red)
        await rig.until(lambda: rig.pool.kinds == [red])
        (warm,) = rig.pool._warm[red]
        taken = rig.pool.take(blue, 1)
        assert taken is not None and taken is not warm, "it is started for the other project"
        assert rig.pool.take(red, 1) is warm, "it waits for its own project"
        rig.pool.record_use(blue)
        await rig.until(lambda: rig.pool.kinds == [blue])
        for runner in (taken, warm):
            await rig.end(runner)

    with_pool(home, work)


def test_a_warm_runner_that_is_taken_is_given_to_no_further_launch(home: Path) -> None:
    async def work(rig: PoolRig) -> None:
        rig.pool.record_use(NOOP)
        await rig.until(lambda: rig.pool.kinds == [NOOP])
        taken = [rig.pool.take(NOOP, 1) for _ in range(3)]
        names = {runner.name for runner in taken if runner is not None}
        assert len(names) == 3
        await rig.until(lambda: rig.pool.kinds == [NOOP])
        assert not names & {runner.name for runner in rig.pool._warm[NOOP]}
        for runner in taken:
            assert runner is not None
            await rig.end(runner)

    with_pool(home, work)


def test_a_kind_that_an_earlier_version_has_kept_for_all_projects_is_kept_no_more(home: Path) -> None:
    saved = [{**_fields(NOOP), "play": "streets"}, {**_fields(NOOP), "environment": "sha256:1"}, _fields(NOOP)]
    (home / "run" / "warm.json").write_text(json.dumps(saved))

    async def work(rig: PoolRig) -> None:
        await rig.until(lambda: rig.pool.kinds == [NOOP])

    with_pool(home, work)


@pytest.mark.parametrize("own", [{"environment": "sha256:1"}, {"play": "streets"}])
def test_what_a_project_brings_is_in_no_fork_server(own: dict[str, str]) -> None:
    platforms = forkable(NOOP, "/platform/evaluator", "/platform/model")
    assert forkable(WarmKind.of(launch_of("red", **own)), "/platform/evaluator", "/platform/model") <= platforms


def test_without_kinds_to_keep_there_is_no_fork_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[object] = []
    monkeypatch.setattr(ForkServers, "keep", lambda self, wanted, in_use: kept.extend(wanted))

    async def work(rig: PoolRig) -> None:
        started = rig.pool.take(NOOP, 1)
        assert started is not None and not started.forked
        rig.pool.record_use(NOOP)
        rig.pool.refill()
        await rig.end(started)

    with_pool(home, work, kinds=0)
    assert not kept


def test_the_packages_of_a_models_own_environment_are_never_forked() -> None:
    own = WarmKind(**{**_fields(NOOP), "environment": "sha256:1"})
    assert {libraries.module for libraries in forkable(NOOP, "/e", "/m")} == {"runner", "evaluator", "model_server"}
    assert {libraries.module for libraries in forkable(own, "/e", "/m")} == {"runner", "evaluator"}


@pytest.mark.parametrize("format", ["keras", "frozen_graph", "torch_export"])
def test_libraries_that_start_threads_are_never_forked(format: str) -> None:
    kind = WarmKind(**{**_fields(NOOP), "format": format})
    assert "model_server" not in {libraries.module for libraries in forkable(kind, "/e", "/m")}


@pytest.mark.parametrize("format", sorted(name for name, format in formats().items() if format.forkable))
def test_libraries_that_may_be_forked_start_no_thread_and_open_nothing(format: str, tmp_path: Path) -> None:
    libraries = Libraries(module="model_server", name=format, site=site_of(formats()[format].runtime, format))
    fork_server = ForkServer(libraries, None, tmp_path / "log")
    fork_server.socket.settimeout(TIMEOUT)
    try:
        assert fork_server.read(), (tmp_path / "log").read_text()
    finally:
        fork_server.end()


def _fields(kind: WarmKind) -> dict[str, str]:
    return {"runtime": kind.runtime, "format": kind.format, "dataset": kind.dataset, "version": kind.version}
