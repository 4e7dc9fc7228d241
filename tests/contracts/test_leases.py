"""Leases on each database engine: every task ends with exactly one result.

Ranges are leased, split, lost, reported repeatedly, and released by dead workers in any order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import insert, text

from core.domain.scheduling.ranges import STRIKES, Lease, RangePosition, ReportedRange, decide_report
from core.store import leases as ranges
from core.store.database import Database
from core.store.leases import LeasingWorker, Segment
from core.store.tables import metadata, simulations, stages

STAGE, SIMULATION = "stage", "simulation"


def begin(database: Database, total: int, align: int = 1) -> None:
    """Empty every table and open one stage."""

    def fill(c: Any) -> None:
        for table in metadata.sorted_tables:
            c.execute(table.delete())
        row = {
            "id": SIMULATION,
            "project": "default",
            "state": "running",
            "spec": "{}",
            "provenance": "{}",
            "created_at": 0.0,
        }
        c.execute(insert(simulations).values(**row, dataset="noop", runtime="python", model="zero", digest="d"))
        c.execute(
            insert(stages).values(id=STAGE, simulation_id=SIMULATION, ordinal=0, total=total, align=align, state="open")
        )

    database.write(fill)


def lend(database: Database, name: str, *, rate: float | None = None, workers: int = 2) -> Lease | None:
    def work(c: Any) -> Lease | None:
        stage = ranges.open_stage(c, SIMULATION)
        return stage and ranges.lend(
            c, stage, LeasingWorker(launch="launch", name=name, rate=rate, workers=workers, ttl=10.0), database.now(c)
        )

    return database.write(work, durable=False)


def report(database: Database, lease: Lease, since: int, to: int) -> RangePosition | None:
    """Report the tasks [since, to); return the new position, or None if the lease is lost.

    The database's decision is checked against `decide_report` on the state before.
    """
    claim = ReportedRange(stage=STAGE, start=lease.start, fencing_token=lease.fencing_token, since=since, to=to)

    def work(c: Any) -> RangePosition | None:
        before = ranges.range_state(c, STAGE, lease.start)
        decision = ranges.advance(c, claim, 1.0, database.now(c))
        assert decision == decide_report(before, claim)
        if decision.end is not None:
            ranges.record(
                c, STAGE, Segment(start=since, stop=decision.end, object="object", offset=0, bytes=1, crc32=0, failed=0)
            )
        return decision.position

    return database.write(work, durable=False)


def crashed(task: int) -> Segment:
    """Return the segment of a crashed task."""
    return Segment(start=task, stop=task + 1, object="crashed", offset=0, bytes=1, crc32=0, failed=1)


def rows(database: Database, query: str) -> list[Any]:
    with database.read() as c:
        return list(c.execute(text(query)))


@dataclass(frozen=True)
class HeldLease:
    worker: str
    lease: Lease
    cursor: int
    stop: int


class Interleavings(RuleBasedStateMachine):
    """Workers that lease, report, repeat reports, stop and die, in any order."""

    database: Database
    clock: Any

    def __init__(self) -> None:
        super().__init__()
        self.leases: list[HeldLease] = []
        self.reports: list[tuple[Lease, int, int]] = []
        self.names = 0
        self.total = 0

    @initialize(total=st.integers(1, 300), align=st.sampled_from([1, 1, 4, 16]))
    def open(self, total: int, align: int) -> None:
        self.total = total
        begin(self.database, total, align)

    @rule(
        rate=st.sampled_from([None, 0.5, 1.0, 10.0, 1000.0]),
        workers=st.integers(1, 4),
        wait=st.sampled_from([0.0, 0.0, 4.0]),
        idle_workers=st.integers(1, 6),
    )
    def lease(self, rate: float | None, workers: int, wait: float, idle_workers: int) -> None:
        """Several idle workers ask at once: the first get the remaining tasks, the others steal."""
        self.clock.now += wait
        for _ in range(idle_workers):
            self.names += 1
            lease = lend(self.database, f"d{self.names}", rate=rate, workers=workers)
            if lease is not None:
                self.leases.append(HeldLease(f"d{self.names}", lease, lease.cursor, lease.stop))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), lost=st.booleans())
    def report(self, data: st.DataObject, lost: bool) -> None:
        self.send(data, data.draw(st.integers(0, len(self.leases) - 1)), lost)

    @precondition(lambda self: self.leases_with_stolen_ends())
    @rule(data=st.data(), lost=st.booleans())
    def report_past_a_stolen_end(self, data: st.DataObject, lost: bool) -> None:
        self.send(data, data.draw(st.sampled_from(self.leases_with_stolen_ends())), lost)

    def leases_with_stolen_ends(self) -> list[int]:
        """Return the indices of the leases whose worker does not know yet that the end was stolen."""
        if not self.leases:
            return []
        stops = dict(rows(self.database, "SELECT fencing_token, stop FROM ranges WHERE state='leased'"))
        return [
            index
            for index, held_lease in enumerate(self.leases)
            if stops.get(held_lease.lease.fencing_token, held_lease.stop) < held_lease.stop
        ]

    def send(self, data: st.DataObject, index: int, lost: bool) -> None:
        """Report as the worker of a lease does; ``lost``: the response never arrives."""
        held_lease = self.leases[index]
        if held_lease.cursor == held_lease.stop:
            del self.leases[index]
            return
        # Mostly to the end that the worker knows, which may have been stolen: then the report counts in part.
        to = data.draw(st.one_of(st.just(held_lease.stop), st.integers(held_lease.cursor + 1, held_lease.stop)))
        self.reports.append((held_lease.lease, held_lease.cursor, to))
        position = report(self.database, held_lease.lease, held_lease.cursor, to)
        if lost:  # the response never arrived: the worker will repeat the report
            return
        if position is None:
            del self.leases[index]
        else:
            self.leases[index] = replace(held_lease, cursor=position.cursor, stop=position.stop)

    @precondition(lambda self: self.reports)
    @rule(data=st.data())
    def repeat_report(self, data: st.DataObject) -> None:
        lease, since, to = data.draw(st.sampled_from(self.reports))
        report(self.database, lease, since, to)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def stop_without_release(self, data: st.DataObject) -> None:
        del self.leases[data.draw(st.integers(0, len(self.leases) - 1))]

    @rule(alive=st.booleans())
    def expire(self, alive: bool) -> None:
        """Time passes: leases without a heartbeat expire; those of living workers do not."""
        self.clock.now += 11.0

        def work(c: Any) -> None:
            for held_lease in self.leases if alive else ():
                ranges.heartbeat(
                    c,
                    STAGE,
                    held_lease.lease.start,
                    held_lease.lease.fencing_token,
                    held_lease.cursor,
                    self.database.now(c),
                )
            for stage, start, fencing_token in ranges.expired(c, self.database.now(c)):
                ranges.release(c, stage, start, fencing_token)

        self.database.write(work, durable=False)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def die_with_witness(self, data: st.DataObject) -> None:
        held_lease = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        lease = held_lease.lease
        released = self.database.write(
            lambda c: ranges.release(
                c, STAGE, lease.start, lease.fencing_token, task=held_lease.cursor, death="killed"
            ),
            durable=False,
        )
        if released is not None and released.strikes >= STRIKES:
            self.settle()

    def settle(self) -> None:
        """Give every poisoned task its result."""

        def work(c: Any) -> None:
            for found in ranges.poisoned(c):
                ranges.settle(c, found.stage, found.stop, crashed(found.start))

        self.database.write(work, durable=False)

    @invariant()
    def ranges_partition_the_leased_tasks(self) -> None:
        if not self.total:
            return
        [(reached,)] = rows(self.database, "SELECT next FROM stages")
        expected_start = 0
        for start, stop in rows(self.database, "SELECT start, stop FROM ranges ORDER BY start"):
            assert start == expected_start, f"a gap or an overlap at {expected_start}: {start}"
            expected_start = stop
        assert expected_start == reached

    def teardown(self) -> None:
        if not self.total:
            return
        self.expire(alive=False)
        self.settle()
        while (lease := lend(self.database, "last", rate=1e6, workers=1)) is not None:
            position = report(self.database, lease, lease.cursor, lease.stop)
            assert position is not None
            self.clock.now += 5.0
        assert self.database.write(lambda c: ranges.close(c, STAGE))
        expected_start = 0
        for start, stop in rows(self.database, "SELECT start, stop FROM segments ORDER BY start"):
            assert start == expected_start, f"task {min(expected_start, start)} has no result, or two"
            expected_start = stop
        assert expected_start == self.total


def test_every_task_ends_with_exactly_one_result_in_any_interleaving(database: Database, clock: Any) -> None:
    class BoundInterleavings(Interleavings):
        pass

    BoundInterleavings.database, BoundInterleavings.clock = database, clock
    embedded = database.embedded
    profile = settings(
        max_examples=60 if embedded else 25,
        stateful_step_count=60,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(BoundInterleavings, settings=profile)


@pytest.fixture
def stage(database: Database) -> Iterator[Database]:
    begin(database, 1000)
    yield database


def test_a_released_range_does_not_hide_the_tasks_that_were_never_leased(stage: Database) -> None:
    first = lend(stage, "a")
    assert first is not None
    stage.write(lambda c: ranges.release(c, STAGE, first.start, first.fencing_token))
    released, fresh = lend(stage, "b", rate=1e6), lend(stage, "c")
    assert released is not None and released.start == first.start
    assert fresh is not None and fresh.start >= first.stop


def test_an_idle_worker_steals_the_back_half_and_the_victim_learns_of_it(stage: Database) -> None:
    begin(stage, 100)
    victim = lend(stage, "a", rate=10.0, workers=1)
    assert victim is not None and (victim.start, victim.stop) == (0, 50)
    quick = lend(stage, "q", rate=1e6)
    assert quick is not None and (quick.start, quick.stop) == (50, 100)
    thief = lend(stage, "b")
    assert thief is not None and (thief.start, thief.stop) == (25, 50), (
        "stolen from the worker with most seconds of work left"
    )
    assert report(stage, victim, 0, 50) == RangePosition(25, 25)
    assert report(stage, thief, 25, 50) == RangePosition(50, 50)
    assert report(stage, quick, 50, 100) == RangePosition(100, 100)
    assert stage.write(lambda c: ranges.close(c, STAGE))


def test_a_straggler_gets_a_speculative_lease_and_the_first_report_counts(stage: Database, clock: Any) -> None:
    begin(stage, 1)
    slow = lend(stage, "slow")
    assert slow is not None and lend(stage, "idle") is None
    clock.now += 4.0
    speculative = lend(stage, "idle")
    assert speculative is not None and speculative.fencing_token == slow.fencing_token
    assert lend(stage, "third") is None, "at most one speculative lease"
    assert report(stage, speculative, 0, 1) == RangePosition(1, 1)
    assert report(stage, slow, 0, 1) == RangePosition(1, 1), "the slow worker learns that the task is done"
    assert len(rows(stage, "SELECT * FROM segments")) == 1


def test_only_the_task_that_kills_its_worker_is_poisoned_and_not_its_batch(stage: Database) -> None:
    begin(stage, 40)
    crashes = 0
    poisoned: list[int] = []
    while (lease := lend(stage, "d", rate=1e6, workers=1)) is not None:
        cursor = lease.cursor
        while cursor < lease.stop:
            to = cursor + 1 if cursor <= lease.careful else lease.stop
            if cursor <= 20 < to:  # task 20 kills its worker before the batch is sent
                crashes += 1
                released = stage.write(
                    lambda c, lease=lease: ranges.release(
                        c, STAGE, lease.start, lease.fencing_token, task=20, death="killed"
                    )
                )
                if released.strikes >= STRIKES:
                    poisoned.append(released.cursor)
                    stage.write(
                        lambda c, released=released: ranges.settle(c, STAGE, released.stop, crashed(released.cursor))
                    )
                break
            position = report(stage, lease, cursor, to)
            assert position is not None
            cursor = position.cursor
    assert poisoned == [20] and crashes == 1 + STRIKES


def test_the_process_that_settles_a_poisoned_task_reads_why_its_last_worker_died(stage: Database) -> None:
    begin(stage, 10)
    for death in ("an accident", "rank 1 was killed", "rank 2 was killed", "rank 3 was killed"):
        lease = lend(stage, "d", rate=1e6, workers=1)
        assert lease is not None
        stage.write(
            lambda c, lease=lease, death=death: ranges.release(
                c, STAGE, lease.start, lease.fencing_token, task=0, death=death
            )
        )
    with stage.read() as c:
        [found] = ranges.poisoned(c)
    assert (found.start, found.stop, found.death) == (0, 10, "rank 3 was killed")
    stage.write(lambda c: ranges.settle(c, STAGE, found.stop, crashed(0)))
    assert rows(stage, "SELECT start, stop, strikes, death FROM ranges WHERE state='pending'") == [(1, 10, 0, None)]


def test_an_expiry_is_never_a_strike(stage: Database, clock: Any) -> None:
    begin(stage, 1)
    for expiries in range(1, 6):
        lease = lend(stage, "d")
        assert lease is not None
        released = stage.write(
            lambda c, lease=lease: ranges.release(c, STAGE, lease.start, lease.fencing_token, task=0)
        )
        assert (released.strikes, released.expiries) == (0, expiries)


def test_a_release_by_the_platform_is_neither_a_strike_nor_an_expiry(stage: Database) -> None:
    lease = lend(stage, "d")
    assert lease is not None
    released = stage.write(lambda c: ranges.release(c, STAGE, lease.start, lease.fencing_token, task=3, blame=False))
    assert (released.strikes, released.expiries) == (0, 0)
    next_lease = lend(stage, "d")
    assert next_lease is not None and next_lease.careful == -1


def test_a_closed_stage_refuses_every_report(stage: Database) -> None:
    lease = lend(stage, "d")
    assert lease is not None
    stage.write(lambda c: ranges.close_early(c, SIMULATION))
    assert report(stage, lease, lease.cursor, lease.stop) is None
    assert lend(stage, "e") is None


def test_a_report_counts_in_an_open_stage_only(stage: Database) -> None:
    lease = lend(stage, "d")
    assert lease is not None
    stage.write(lambda c: c.execute(text("UPDATE stages SET state='closed'")) and None)  # the range stays leased
    claim = ReportedRange(
        stage=STAGE, start=lease.start, fencing_token=lease.fencing_token, since=lease.cursor, to=lease.stop
    )
    assert stage.write(lambda c: ranges.advance(c, claim, 1.0, 0.0)).end is None


def test_a_lease_that_was_cut_at_its_cursor_is_released_as_done(stage: Database) -> None:
    begin(stage, 8)
    lease = lend(stage, "d", workers=1)
    assert lease is not None and report(stage, lease, 0, 2) is not None
    stage.write(lambda c: c.execute(text("UPDATE ranges SET stop=2 WHERE start=0")) and None)
    stage.write(lambda c: ranges.lay(c, STAGE, 2, lease.stop, done=False))
    assert stage.write(lambda c: ranges.release(c, STAGE, 0, lease.fencing_token)) is not None
    states = [tuple(row) for row in rows(stage, "SELECT start, state FROM ranges ORDER BY start")]
    assert states == [(0, "done"), (2, "pending")]


def test_ranges_are_cut_at_multiples_of_the_stage_s_alignment(stage: Database) -> None:
    begin(stage, 1000, align=16)
    leases = [lend(stage, f"d{n}", rate=3.0, workers=3) for n in range(6)]
    assert all(lease is not None and lease.start % 16 == 0 for lease in leases)
