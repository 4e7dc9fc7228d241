"""Leases in every order of their transactions' steps: steal, report, release and early end, by the real services.

Each property is checked against a broken variant of the code, in which the exploration has to find a schedule that
violates it. `make verify` explores more orders than `make test`.
"""

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, text

from common.errors import Conflict, Gone
from common.ids import hashed
from core.domain.scheduling.ranges import Ended, Later, Lease
from core.notifications.local_notifier import LocalNotifier
from core.services.scheduling.leases import CachedLaunch, LeaseOptions, Leases
from core.services.scheduling.reports import TaskReport
from core.store import leases, simulations
from core.store.database import Connection, Database
from core.store.leases import LeasingWorker
from core.store.tables import launches, metadata
from datasets.objectstore.filesystem import FilesystemStore
from runtimes.harness.runner.runner_api_messages import ReportHeader
from tests.conftest import Clock
from tests.contracts.test_database import ROW
from tests.interleavings import Actor, Explorer, Violation, raised, take_turn

SIMULATION, STAGE, LAUNCH, TOKEN = "s1", "s1.0", "l1", "t"
TOTAL, TTL = 12, 10.0
#: All orders in which one actor interrupts another once, or twice.
DEPTHS = [pytest.param(1, id="quick"), pytest.param(2, id="deep")]


@dataclass
class World:
    """A running simulation of one stage, all of whose tasks are leased to one worker, the victim of thieves."""

    database: Database
    store: FilesystemStore
    clock: Clock
    held: list[Lease] = field(default_factory=list)
    closed_with: int | None = None  # results when the simulation was ended early

    def begin(self) -> None:
        self.held, self.closed_with = [], None
        self.service = Leases(self.database, self.store, LocalNotifier(), options=LeaseOptions(ttl=TTL, cache_ttl=1e9))
        now = self.clock.now

        def fill(c: Connection) -> None:
            for table in metadata.sorted_tables:
                c.execute(table.delete())
            stage = {"id": STAGE, "simulation_id": SIMULATION, "ordinal": 0, "total": TOTAL, "state": "open"}
            simulations.add(c, ROW | {"state": "running", "created_at": now}, stage)
            row = {"id": LAUNCH, "simulation_id": SIMULATION, "attempt": 1, "executor": "e", "state": "live"}
            row |= {"token_hash": hashed(TOKEN), "resources": json.dumps({"cpu": 1, "done": 0}), "created_at": now}
            c.execute(insert(launches).values(**row))
            first = leases.open_stage(c, SIMULATION)
            assert first is not None
            lease = leases.lend(c, first, LeasingWorker(LAUNCH, "victim", 1e6, 1, TTL), now)
            assert lease is not None and lease.stop == TOTAL
            c.execute(text("UPDATE ranges SET rate=NULL"))  # of a fast worker, the rest is not worth a steal
            self.held.append(lease)

        self.database.write(fill)
        self.launch = self.known()

    def known(self) -> CachedLaunch:
        return self.service.authenticate(LAUNCH, TOKEN)

    def steal(self, name: str) -> Lease | Later | Ended:
        lease = self.service.lease(self.launch, name, None)
        if isinstance(lease, Lease):
            self.held.append(lease)
        return lease

    def report(self, lease: Lease, tasks: int, *, more: bool = False) -> bool:
        """Report the first tasks of a lease; ``more``: and ask for the next lease. Return whether they count."""
        since, to = lease.cursor, lease.cursor + tasks
        line = '{"task":%d,"status":"ok"}\n'
        lines = "".join(line % task for task in range(since, to)).encode()
        header = ReportHeader(
            worker="w",
            stage=STAGE,
            start=lease.start,
            fencing_token=lease.fencing_token,
            since=since,
            to=to,
            lines=len(lines),
            next=more,
        )
        outcome = self.service.report(self.launch, TaskReport(header, lines))
        if isinstance(outcome.next, Lease):
            self.held.append(outcome.next)
        return outcome.accepted

    def end_early(self) -> None:
        self.service.fail(self.launch, "its model does not load")
        self.closed_with = self.results()

    def rows(self, query: str) -> list[Any]:
        with self.database.read() as c:
            return [tuple(row) for row in c.execute(text(query))]

    def results(self) -> int:
        return int(self.rows("SELECT coalesce(sum(stop-start), 0) FROM segments")[0][0])

    # -- actors

    def victim(self) -> None:
        self.report(self.held[0], 8)  # beyond the end that a thief leaves it

    def finisher(self) -> None:
        self.report(self.held[0], TOTAL, more=True)

    def thief(self) -> None:
        lease = self.steal("thief")
        if isinstance(lease, Lease):
            self.report(lease, 2)

    def second_thief(self) -> None:
        self.steal("second")

    def reaper(self) -> None:
        """Expire the victim's lease: its runner has sent no heartbeat."""
        take_turn(self.database)
        self.clock.now += TTL + 1.0
        self.service.expire()

    # -- properties

    def check(self, results: Mapping[str, Any]) -> None:
        unexpected = raised(results, Gone, Conflict)
        assert not unexpected, unexpected
        bounds = self.rows("SELECT start, stop, cursor FROM ranges ORDER BY start")
        assert [stop for _, stop, _ in bounds[:-1]] == [start for start, _, _ in bounds[1:]], f"ranges: {bounds}"
        assert (bounds[0][0], bounds[-1][1]) == (0, TOTAL), f"ranges: {bounds}"
        played = self.rows("SELECT start FROM ranges WHERE cursor=stop AND state IN ('pending', 'leased')")
        assert not played, f"played to their ends and open: {played}"
        segments = self.rows("SELECT start, stop FROM segments ORDER BY start")
        assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(segments)), segments
        assert self.results() == sum(cursor - start for start, _, cursor in bounds), (segments, bounds)
        if self.closed_with is not None:
            left = self.rows("SELECT start, state FROM ranges WHERE state IN ('pending', 'leased')")
            assert not left, f"open after the early end: {left}"
            assert not any(self.report(lease, 1) for lease in self.held), "a report counts after the end"
            assert self.results() == self.closed_with, "results came after the end"


@pytest.fixture
def world(database: Database, tmp_path: Path, clock: Clock) -> World:
    return World(database, FilesystemStore(tmp_path / "objects"), clock)


def explore(world: World, *actors: str, preemptions: int | None) -> None:
    """Explore the orders of these actors, which are methods of the world."""

    def begin() -> Mapping[str, Actor]:
        world.begin()
        return {name: getattr(world, name) for name in actors}

    explored = Explorer(world.database, preemptions=preemptions).explore(begin, world.check)
    assert explored.schedules > 1


@pytest.mark.parametrize("preemptions", DEPTHS)
@pytest.mark.parametrize(
    "actors",
    [("victim", "thief"), ("thief", "end_early"), ("victim", "end_early"), ("reaper", "thief"), ("finisher", "reaper")],
    ids="-and-".join,
)
def test_each_task_counts_once_and_none_after_an_early_end(
    world: World, actors: tuple[str, ...], preemptions: int
) -> None:
    explore(world, *actors, preemptions=preemptions)


@pytest.mark.parametrize(
    "actors",
    [
        ("victim", "thief", "end_early"),
        ("finisher", "thief", "end_early"),
        ("thief", "second_thief", "end_early"),
        ("reaper", "thief", "end_early"),
        ("victim", "reaper", "thief"),
        ("finisher", "thief", "second_thief"),
    ],
    ids="-and-".join,
)
def test_each_task_counts_once_whichever_three_meet(world: World, actors: tuple[str, ...]) -> None:
    explore(world, *actors, preemptions=1)


def close_without_a_second_look(c: Connection, simulation: str) -> None:
    c.execute(leases._CLOSE_STAGES, {"i": simulation})
    c.execute(leases._CLOSE_RANGES, {"i": simulation})


def without(statement: str, *conditions: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a patch that removes conditions from a statement of `core/store/leases.py`."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        query = getattr(leases, statement).text
        for condition in conditions:
            assert condition in query
            query = query.replace(condition, "")
        monkeypatch.setattr(leases, statement, text(query))

    return patch


#: Broken variants: what is taken away, who meets, whether SQLite shows it too, and what is found.
VARIANTS: Mapping[str, tuple[Callable[[pytest.MonkeyPatch], None], tuple[str, ...], bool, str]] = {
    "the second look": (
        lambda patch: patch.setattr(leases, "close_early", close_without_a_second_look),
        ("thief", "end_early"),
        False,
        "open after the early end",
    ),
    "the cursor that a thief believes": (
        without("_STEAL", " AND cursor<:mid"),
        ("victim", "thief"),
        False,
        "ranges_check",  # the table has a check of its own
    ),
    "the cursor that a report believes": (
        without("_REPORT", " AND cursor=:from"),
        ("victim", "finisher"),
        True,
        "segments",
    ),
    "the lease that a release believes": (
        without(
            "_RETURN_ALL", " AND fencing_token=:f", " AND cursor=:cursor", " AND stop=:stop", " AND state='leased'"
        ),
        ("finisher", "reaper"),
        False,
        "played to their ends and open",
    ),
    "the end that a release believes": (
        without("_RETURN_DONE", " AND stop=:stop"),
        ("victim", "reaper", "thief"),
        False,
        "ranges: ",
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_exploration_finds_what_is_missing(world: World, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it, actors, on_sqlite, found = VARIANTS[variant]
    break_it(monkeypatch)
    if world.database.embedded and not on_sqlite:
        explore(world, *actors, preemptions=1)  # its one writer makes the condition redundant
        return
    with pytest.raises(Violation, match=found):
        explore(world, *actors, preemptions=2)
