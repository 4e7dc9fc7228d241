"""Usage on both databases: what is granted counts from launch to end, whatever the clock does or is killed."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert, select

from core.domain.access.scopes import LOCAL_CALLER, PLATFORM, Scope
from core.domain.scheduling.launches import Launch, Phase
from core.domain.usage.granted_resources import GrantedResources, WarmGrant
from core.domain.usage.usage_sums import UsageSum, groupings
from core.store import events
from core.store.database import Database
from core.store.rows import columns_of, read_rows
from core.store.tables import usage_intervals
from core.store.usage_intervals import IntervalRow
from core.store.usage_sums import DAY, sums
from tests.api.answers import MODEL
from tests.conftest import Clock
from tests.contracts.test_dispatcher import DispatcherRig, dispatcher_rig
from tests.contracts.test_warm_launches import WarmExecutor
from workers.background_jobs import Jobs

HOUR = 3600.0


@pytest.fixture
def rig(tmp_path: Path, database: Database) -> Iterator[DispatcherRig]:
    with dispatcher_rig(tmp_path, database) as rig:
        rig.platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
        yield rig


def intervals(rig: DispatcherRig, id: str) -> list[IntervalRow]:
    query = select(*columns_of(usage_intervals, IntervalRow)).where(usage_intervals.c.simulation_id == id)
    with rig.platform.database.read() as c:
        rows = c.execute(query.order_by(usage_intervals.c.launch_id, usage_intervals.c.number))
        return read_rows(rows, IntervalRow)


def lengths(rig: DispatcherRig, id: str) -> list[tuple[int, int]]:
    """Return workers and milliseconds of each interval."""
    return [(row.workers, row.milliseconds) for row in intervals(rig, id)]


def let_pass(rig: DispatcherRig, clock: Clock, seconds: float) -> None:
    """Let time pass, for the database and for the dispatcher."""
    clock.now += seconds
    marks = rig.dispatcher._usage_marks._marked_at
    marks |= {name: at - seconds for name, at in marks.items()}
    if rig.dispatcher._clocks is not None:
        own, databases = rig.dispatcher._clocks
        rig.dispatcher._clocks = own - seconds, databases


def observe_again(rig: DispatcherRig, clock: Clock, seconds: float) -> None:
    """Let time pass, and the dispatcher look at every executor and mark what it shows."""
    let_pass(rig, clock, seconds)
    rig.dispatcher.step()


def end(rig: DispatcherRig, id: str) -> list[IntervalRow]:
    """Wait until a simulation and its launch have ended; return its intervals."""
    rig.end(id)
    rig.until(lambda: not any(row.open for row in intervals(rig, id)))
    return intervals(rig, id)


def progressed(rig: DispatcherRig, id: str) -> bool:
    with rig.platform.database.read() as c:
        return events.last_of_types(c, id, ("progress",)) is not None


def launched(rig: DispatcherRig, **fields: Any) -> tuple[str, Any, Launch]:
    id = rig.submit(**fields)
    executor, launch = rig.launch(id)
    return id, executor, launch


def test_what_is_granted_counts_from_launch_to_end(rig: DispatcherRig, clock: Clock) -> None:
    id, _, launch = launched(rig, labels={"team": "a"}, placement={"cpu": 1.5, "memory": 3 << 30})
    observe_again(rig, clock, 8.0)
    rig.play(launch)
    let_pass(rig, clock, 1.5)
    [row] = end(rig, id)
    assert (row.milliseconds, row.workers) == (9500, 2)
    assert (row.millicores, row.mebibytes, row.gpus) == (1500, 3072, 0)
    assert (row.project, row.kind, row.labels, row.launch_id) == ("default", "simulation", '{"team":"a"}', launch.id)
    assert (row.estimated, row.lost) == (0, 0)


def test_a_dry_run_is_a_kind_of_its_own(rig: DispatcherRig) -> None:
    id, _, _ = launched(rig, dry_run=True, workers=None)
    assert [row.kind for row in intervals(rig, id)] == ["dry-run"]


def test_other_workers_are_another_interval_that_begins_where_the_first_ends(rig: DispatcherRig, clock: Clock) -> None:
    id, _, launch = launched(rig)
    rig.play(launch, 5)
    observe_again(rig, clock, 6.0)
    rig.platform.submissions.simulations.resize(LOCAL_CALLER, id, 1)
    let_pass(rig, clock, 2.0)
    rig.until(lambda: len(intervals(rig, id)) == 2)
    observe_again(rig, clock, 7.0)
    rig.play(launch)
    first, second = end(rig, id)
    assert lengths(rig, id) == [(2, 8000), (1, 7000)]
    assert second.until_at - second.milliseconds / 1000 == pytest.approx(first.until_at)


def test_deleting_the_simulation_changes_nothing(rig: DispatcherRig, clock: Clock) -> None:
    id, _, launch = launched(rig)
    let_pass(rig, clock, 4.0)
    rig.play(launch)
    before = end(rig, id)
    rig.platform.submissions.simulations.delete(LOCAL_CALLER, id)
    rig.platform.jobs.deletion.remove(id)
    assert intervals(rig, id) == before and len(before) == 1


@pytest.mark.parametrize("step", [-HOUR, HOUR, -12.0, 400 * 86_400.0])
def test_a_clock_that_is_set_changes_no_length(rig: DispatcherRig, clock: Clock, step: float) -> None:
    id, _, launch = launched(rig)
    observe_again(rig, clock, 20.0)
    rig.dispatcher.step()
    clock.now += step
    rig.dispatcher.step()  # which notices
    observe_again(rig, clock, 30.0)
    rig.play(launch)
    let_pass(rig, clock, 2.0)
    end(rig, id)
    [(_, milliseconds)] = lengths(rig, id)
    assert milliseconds == pytest.approx(52_000, abs=200)


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_clock_that_is_set_just_before_a_mark_changes_no_length(
    rig: DispatcherRig, clock: Clock, step: float
) -> None:
    id, executor, launch = launched(rig)
    observe_again(rig, clock, 20.0)
    clock.now += step + 6.0
    rig.dispatch.mark_usage(executor.name, {launch.id}, set(), (), 6.0)
    [(_, milliseconds)] = lengths(rig, id)
    assert milliseconds == pytest.approx(26_000, abs=200)


def test_the_end_of_a_launch_that_was_killed_is_estimated_marked_and_lost(rig: DispatcherRig, clock: Clock) -> None:
    id, executor, launch = launched(rig)
    observe_again(rig, clock, 60.0)
    let_pass(rig, clock, 3.0)
    executor.reported = {"phase": Phase.ENDED, "exit": 137}
    rig.until(lambda: not intervals(rig, id)[0].open)
    rows = [row for row in intervals(rig, id) if row.launch_id == launch.id]
    assert [(row.milliseconds, row.estimated, row.lost) for row in rows] == [(60_000, 0, 1), (3000, 1, 1)]


def test_of_a_lost_launch_what_it_brought_is_not_lost(rig: DispatcherRig, clock: Clock) -> None:
    id, executor, launch = launched(rig)
    observe_again(rig, clock, 60.0)
    rig.play(launch, 5)
    rig.until(lambda: progressed(rig, id))
    observe_again(rig, clock, 7.0)
    observe_again(rig, clock, 0.7)
    executor.reported = {"phase": Phase.ENDED, "exit": 137}
    rig.until(lambda: not intervals(rig, id)[0].open)
    rows = [row for row in intervals(rig, id) if row.launch_id == launch.id]
    assert [(row.milliseconds, row.estimated, row.lost) for row in rows] == [(60_000, 0, 0), (7000, 0, 1), (700, 1, 1)]


def test_at_most_ten_seconds_are_estimated_after_everything_was_killed(rig: DispatcherRig, clock: Clock) -> None:
    id, executor, launch = launched(rig)
    observe_again(rig, clock, 60.0)
    let_pass(rig, clock, HOUR)  # nobody looked
    executor.reported = {"phase": Phase.ENDED, "exit": 137}
    rig.until(lambda: not intervals(rig, id)[0].open)
    rows = [row for row in intervals(rig, id) if row.launch_id == launch.id]
    assert [(row.milliseconds, row.estimated) for row in rows] == [(60_000, 0), (5000, 1)]


def test_what_outlived_the_platform_counts_in_full(rig: DispatcherRig, clock: Clock) -> None:
    id, _, launch = launched(rig)
    observe_again(rig, clock, 60.0)
    rig.configure(*rig.managed.values())  # another dispatcher
    clock.now += HOUR
    rig.dispatcher.step()
    rig.play(launch)
    assert [(row.milliseconds, row.estimated) for row in end(rig, id)] == [(3_660_000, 0)]


def test_a_launch_in_the_queue_of_its_cluster_has_nothing_yet(rig: DispatcherRig, clock: Clock) -> None:
    id, executor, _ = launched(rig)
    executor.reported = {"phase": Phase.SUSPENDED}
    observe_again(rig, clock, 600.0)
    executor.reported = {"phase": Phase.RUNNING}
    observe_again(rig, clock, 9.0)
    assert lengths(rig, id) == [(2, 9000)]


def test_a_job_is_a_kind_of_its_own_for_the_project_that_it_works_for(rig: DispatcherRig, tmp_path: Path) -> None:
    platform = rig.platform
    folders: dict[str, Any] = {"environments_folder": tmp_path, "sandbox": None}
    jobs = Jobs(platform.jobs, platform.files, platform.catalogue, platform.pipelines, platform.upkeep, **folders)
    id, _, launch = launched(rig, labels={"team": "a"})
    rig.play(launch)
    rig.until(lambda: not rig.dispatch.unfinished([id]) and rig.dispatch.close(id))
    jobs.table["collect"](id)
    jobs.table["collect"]("of what is gone")
    job, simulation = sorted(intervals(rig, id), key=lambda row: row.kind)
    assert (job.kind, job.open, job.workers, job.labels, job.project) == ("job", 0, 1, simulation.labels, "default")
    assert simulation.kind == "simulation" and job.launch_id.startswith("collect-")


# -- warm runners


class GrantingExecutor(WarmExecutor):
    """Executor that says what its warm runners have: those in ``pool``, and others."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.granted: list[WarmGrant] = []

    def warm_grants(self) -> list[WarmGrant]:
        self._answer()
        return self.granted


def warm(id: str, mebibytes: int = 2048, project: str = "") -> WarmGrant:
    return WarmGrant(id, project, GrantedResources(1, 1000, mebibytes, 0))


@pytest.fixture
def granting(rig: DispatcherRig) -> GrantingExecutor:
    executor = GrantingExecutor("east")
    rig.east = rig.managed["east"].executor = executor
    return executor


def look(rig: DispatcherRig, clock: Clock, seconds: float) -> None:
    """Let time pass in which nothing runs, and the dispatcher look at the first executor."""
    rig.managed["east"].search_orphans_soon()
    observe_again(rig, clock, seconds)


def warm_intervals(rig: DispatcherRig) -> list[tuple[str, int, str, int, int, int]]:
    """Return launch, number, project, MiB, milliseconds and whether it is estimated of each interval that was warm."""
    with rig.platform.database.read() as c:
        query = select(*columns_of(usage_intervals, IntervalRow)).where(usage_intervals.c.kind == "warm")
        rows = read_rows(c.execute(query.order_by(usage_intervals.c.launch_id, usage_intervals.c.number)), IntervalRow)
    return [(r.launch_id, r.number, r.project, r.mebibytes, r.milliseconds, r.estimated) for r in rows]


def open_intervals(rig: DispatcherRig) -> list[str]:
    with rig.platform.database.read() as c:
        return list(c.scalars(select(usage_intervals.c.launch_id).where(usage_intervals.c.open == 1)))


def test_a_warm_runner_counts_for_who_it_serves_from_when_it_is_seen(
    rig: DispatcherRig, granting: GrantingExecutor, clock: Clock
) -> None:
    granting.granted = [warm("warm1"), warm("warm2", project="red")]
    look(rig, clock, 0.0)
    look(rig, clock, 60.0)
    granting.granted.pop()
    look(rig, clock, 60.0)
    assert warm_intervals(rig) == [("warm1", 1, "", 2048, 120_000, 0), ("warm2", 1, "red", 2048, 120_000, 0)]
    assert open_intervals(rig) == ["warm1"]
    with rig.platform.database.read() as c:
        by = sums(c, PLATFORM, groupings(["kind", "project"]))
    assert [(each.group, each.used.workers) for each in by] == [(("warm", ""), 120_000), (("warm", "red"), 120_000)]


def test_a_launch_that_takes_a_warm_runner_goes_on_where_its_wait_ends(
    rig: DispatcherRig, granting: GrantingExecutor, clock: Clock
) -> None:
    granting.granted, granting.pool = [warm("warm1")], ["warm1"]
    look(rig, clock, 0.0)
    let_pass(rig, clock, 8.0)
    id, _, launch = launched(rig, placement={"executor": "east"}, workers=1)
    assert launch.id == "warm1"
    observe_again(rig, clock, 9.0)  # the executor still shows it as one that waits
    assert warm_intervals(rig) == [("warm1", 1, "", 2048, 8000, 0)]
    [row] = intervals(rig, id)
    assert (row.number, row.kind, row.project, row.milliseconds) == (2, "simulation", "default", 9000)


def test_other_memory_of_a_warm_runner_is_another_interval(
    rig: DispatcherRig, granting: GrantingExecutor, clock: Clock
) -> None:
    granting.granted = [warm("warm1", 100)]
    look(rig, clock, 0.0)
    look(rig, clock, 60.0)
    granting.granted = [warm("warm1", 80)]
    look(rig, clock, 60.0)
    look(rig, clock, 60.0)
    assert warm_intervals(rig) == [("warm1", 1, "", 100, 120_000, 0), ("warm1", 2, "", 80, 60_000, 0)]


def test_of_a_warm_runner_that_did_not_outlive_the_platform_seconds_are_estimated(
    rig: DispatcherRig, granting: GrantingExecutor, clock: Clock
) -> None:
    granting.granted = [warm("gone"), warm("there")]
    look(rig, clock, 0.0)
    look(rig, clock, 60.0)
    rig.configure(*rig.managed.values())  # another dispatcher
    granting.granted.pop(0)
    look(rig, clock, HOUR)
    assert warm_intervals(rig) == [
        ("gone", 1, "", 2048, 60_000, 0),
        ("gone", 2, "", 2048, 5_000, 1),
        ("there", 1, "", 2048, 3_660_000, 0),
    ]


def test_warm_runners_of_an_executor_that_is_no_longer_configured_count_no_more(
    rig: DispatcherRig, granting: GrantingExecutor, clock: Clock
) -> None:
    granting.granted = [warm("warm1")]
    look(rig, clock, 0.0)
    rig.configure(rig.managed["west"])
    observe_again(rig, clock, 60.0)
    assert open_intervals(rig) == []


def test_a_machine_that_rests_and_has_no_warm_runners_writes_nothing(
    rig: DispatcherRig, granting: GrantingExecutor, clock: Clock
) -> None:
    marked: list[str] = []
    write = rig.dispatch.mark_usage
    rig.dispatch.mark_usage = lambda name, *others: (marked.append(name), write(name, *others))[1]  # type: ignore[method-assign]
    for _ in range(3):
        look(rig, clock, 60.0)
    assert marked.count("east") == 1, "what an earlier process left is ended once"
    granting.granted = [warm("warm1")]
    look(rig, clock, 60.0)
    granting.granted = []
    look(rig, clock, 60.0)
    look(rig, clock, 60.0)
    assert marked.count("east") == 3


def test_a_launch_of_a_version_without_usage_counts_from_its_start(rig: DispatcherRig, clock: Clock) -> None:
    id, _, launch = launched(rig, placement={"cpu": 1.5, "memory": 3 << 30})
    rig.platform.database.write(lambda c: c.execute(usage_intervals.delete()))  # as 0.2.0 has begun it
    observe_again(rig, clock, HOUR)
    observe_again(rig, clock, 6.0)
    rig.play(launch)
    [row] = end(rig, id)
    assert (row.milliseconds, row.workers, row.millicores, row.mebibytes) == (3_606_000, 2, 1500, 3072)
    assert (row.launch_id, row.kind, row.project, row.estimated) == (launch.id, "simulation", "default", 0)


# -- sums

BEGIN = 20_000 * DAY
VALUES = st.fixed_dictionaries(
    {
        "project": st.sampled_from(["red", "blue"]),
        "user": st.sampled_from(["", "ada", "bob"]),
        "simulation_id": st.sampled_from(["s1", "s2", "s3"]),
        "kind": st.sampled_from(["simulation", "dry-run", "warm"]),
        "labels": st.sampled_from(["{}", '{"team":"a"}', '{"team":"b","it\'s \\"q\\".x":"1"}']),
        "executor": st.sampled_from(["local", "far"]),
        "workers": st.integers(0, 5000),
        "millicores": st.integers(0, 64_000),
        "mebibytes": st.integers(0, 1 << 20),
        "gpus": st.integers(0, 8),
        "milliseconds": st.integers(0, 5 * DAY),
        "stop": st.integers(BEGIN, BEGIN + 9 * DAY),
        "estimated": st.integers(0, 1),
        "lost": st.integers(0, 1),
    }
)
NAMES = ["day", "project", "user", "simulation", "kind", "executor", "label", "label:team", 'label:it\'s "q".x']


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def summed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    from tests.databases import postgres_url, sqlite_database

    if request.param == "sqlite":
        database = sqlite_database(tmp_path_factory.mktemp("sums") / "test.db")
    else:
        database = Database(postgres_url(request.getfixturevalue("postgres"), f"sums-{request.node.nodeid}"))
    yield database
    database.close()


def stored(database: Database, rows: list[dict[str, Any]]) -> None:
    def write(c: Any) -> None:
        c.execute(usage_intervals.delete())
        for number, row in enumerate(rows):
            values = {name: value for name, value in row.items() if name != "stop"}
            values |= {"launch_id": str(number), "number": 1, "until_at": row["stop"] / 1000, "open": 0}
            c.execute(insert(usage_intervals).values(**values))

    database.write(write)


def total_of(rows: list[dict[str, Any]], since: int, until: int) -> int:
    """Return the milliseconds of thousandths of cores, counted another way."""
    return sum(
        max(0, min(row["stop"], until) - max(row["stop"] - row["milliseconds"], since))
        * row["workers"]
        * row["millicores"]
        for row in rows
    )


@given(
    rows=st.lists(VALUES, max_size=8),
    names=st.lists(st.sampled_from(NAMES), unique=True, max_size=4),
    bounds=st.tuples(st.integers(BEGIN - 6 * DAY, BEGIN + 9 * DAY), st.integers(0, 12 * DAY)),
)
def test_sums_by_anything_are_one_number(
    summed: Database, rows: list[dict[str, Any]], names: list[str], bounds: tuple[int, int]
) -> None:
    stored(summed, rows)
    since, until = bounds[0], bounds[0] + bounds[1]
    with summed.read() as c:
        [total] = sums(c, PLATFORM, [], since=since / 1000, until=until / 1000)
        by = sums(c, PLATFORM, groupings(names), since=since / 1000, until=until / 1000)
        red, blue = (
            sums(c, Scope(project), [], since=since / 1000, until=until / 1000)[0] for project in ("red", "blue")
        )
    assert sum(by, UsageSum()) == total
    assert red + blue == total
    assert total.used.millicores == total_of(rows, since, until)
    assert len({each.group for each in by}) == len(by) and all(len(each.group) == len(names) for each in by)


@given(rows=st.lists(VALUES, max_size=8))
def test_a_day_has_what_lies_between_its_midnights(summed: Database, rows: list[dict[str, Any]]) -> None:
    stored(summed, rows)
    with summed.read() as c:
        by_day = sums(c, PLATFORM, groupings(["day"]))
        for each in by_day:
            begin = (date.fromisoformat(each.group[0]) - date(1970, 1, 1)).days * DAY
            assert each.used.millicores == total_of(rows, begin, begin + DAY)


def test_a_project_has_no_sums_of_another(summed: Database) -> None:
    row = {"project": "red", "user": "", "simulation_id": "s", "kind": "simulation", "labels": "{}", "executor": "l"}
    row |= {"workers": 1, "millicores": 1000, "mebibytes": 1, "gpus": 0, "milliseconds": 5, "stop": BEGIN}
    stored(summed, [row | {"estimated": 0, "lost": 0}])
    with summed.read() as c:
        assert sums(c, Scope("blue"), groupings(["user"])) == []
        assert [each.used.workers for each in sums(c, Scope("red"), groupings(["user"]))] == [5]
