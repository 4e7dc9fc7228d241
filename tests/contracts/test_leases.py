"""Leases on each database: whatever is lent, stolen, lost, repeated or killed.

Every task ends with exactly one result.
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

from core.domain.ranges import STRIKES, Lease, RangePosition, ReportedRange, decide_report
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
            "project": "p",
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
    """Report the tasks [since, to); return where to go on, None if the lease is lost.

    What the database did is what the service's rule says of the range as it stood before.
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


def rows(database: Database, what: str) -> list[Any]:
    with database.read() as c:
        return list(c.execute(text(what)))


@dataclass(frozen=True)
class Held:
    worker: str
    lease: Lease
    cursor: int
    stop: int


class Interleavings(RuleBasedStateMachine):
    """Workers that lease, report, repeat themselves, fall silent and die, in any order."""

    database: Database
    clock: Any

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Held] = []
        self.said: list[tuple[Lease, int, int]] = []
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
        crowd=st.integers(1, 6),
    )
    def lease(self, rate: float | None, workers: int, wait: float, crowd: int) -> None:
        """Several idle workers ask at once: the first take what is left, the others steal."""
        self.clock.now += wait
        for _ in range(crowd):
            self.names += 1
            lease = lend(self.database, f"d{self.names}", rate=rate, workers=workers)
            if lease is not None:
                self.held.append(Held(f"d{self.names}", lease, lease.cursor, lease.stop))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), lost=st.booleans())
    def report(self, data: st.DataObject, lost: bool) -> None:
        self.send(data, data.draw(st.integers(0, len(self.held) - 1)), lost)

    @precondition(lambda self: self.robbed())
    @rule(data=st.data(), lost=st.booleans())
    def report_past_a_stolen_end(self, data: st.DataObject, lost: bool) -> None:
        self.send(data, data.draw(st.sampled_from(self.robbed())), lost)

    def robbed(self) -> list[int]:
        """Return the indices of the leases whose worker does not know yet that their end was stolen."""
        if not self.held:
            return []
        stops = dict(rows(self.database, "SELECT fencing_token, stop FROM ranges WHERE state='leased'"))
        return [
            index for index, held in enumerate(self.held) if stops.get(held.lease.fencing_token, held.stop) < held.stop
        ]

    def send(self, data: st.DataObject, index: int, lost: bool) -> None:
        """Report as one of the holders would; ``lost``: the answer never arrives."""
        held = self.held[index]
        if held.cursor == held.stop:
            del self.held[index]
            return
        # Mostly to the end that the worker knows, which may have been stolen: then the report counts in part.
        to = data.draw(st.one_of(st.just(held.stop), st.integers(held.cursor + 1, held.stop)))
        self.said.append((held.lease, held.cursor, to))
        place = report(self.database, held.lease, held.cursor, to)
        if lost:  # the answer never arrived: the worker will say the same again
            return
        if place is None:
            del self.held[index]
        else:
            self.held[index] = replace(held, cursor=place.cursor, stop=place.stop)

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        lease, since, to = data.draw(st.sampled_from(self.said))
        report(self.database, lease, since, to)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def fall_silent(self, data: st.DataObject) -> None:
        del self.held[data.draw(st.integers(0, len(self.held) - 1))]

    @rule(alive=st.booleans())
    def expire(self, alive: bool) -> None:
        """Time passes: leases without a heartbeat expire; those of living workers do not."""
        self.clock.now += 11.0

        def work(c: Any) -> None:
            for held in self.held if alive else ():
                ranges.heartbeat(
                    c, STAGE, held.lease.start, held.lease.fencing_token, held.cursor, self.database.now(c)
                )
            for stage, start, fencing_token in ranges.expired(c, self.database.now(c)):
                ranges.release(c, stage, start, fencing_token, witness=False)

        self.database.write(work, durable=False)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def die_seen(self, data: st.DataObject) -> None:
        held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        lease = held.lease
        back = self.database.write(
            lambda c: ranges.release(c, STAGE, lease.start, lease.fencing_token, task=held.cursor, witness=True),
            durable=False,
        )
        if back is not None and back.strikes >= STRIKES:
            self.settle()

    def settle(self) -> None:
        def work(c: Any) -> None:
            for stage, start, stop in ranges.poisoned(c):
                ranges.settle(
                    c,
                    stage,
                    stop,
                    Segment(start=start, stop=start + 1, object="crashed", offset=0, bytes=1, crc32=0, failed=1),
                )

        self.database.write(work, durable=False)

    @invariant()
    def ranges_partition_what_was_cut(self) -> None:
        if not self.total:
            return
        [(reached,)] = rows(self.database, "SELECT next FROM stages")
        at = 0
        for start, stop in rows(self.database, "SELECT start, stop FROM ranges ORDER BY start"):
            assert start == at, f"a gap or an overlap at {at}: {start}"
            at = stop
        assert at == reached

    def teardown(self) -> None:
        if not self.total:
            return
        self.expire(alive=False)
        self.settle()
        while (lease := lend(self.database, "last", rate=1e6, workers=1)) is not None:
            place = report(self.database, lease, lease.cursor, lease.stop)
            assert place is not None
            self.clock.now += 5.0
        assert self.database.write(lambda c: ranges.close(c, STAGE))
        at = 0
        for start, stop in rows(self.database, "SELECT start, stop FROM segments ORDER BY start"):
            assert start == at, f"task {min(at, start)} has no result, or two"
            at = stop
        assert at == self.total


def test_every_task_ends_with_exactly_one_result_in_any_interleaving(database: Database, clock: Any) -> None:
    class Bound(Interleavings):
        pass

    Bound.database, Bound.clock = database, clock
    embedded = database.embedded
    profile = settings(
        max_examples=60 if embedded else 25,
        stateful_step_count=60,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Bound, settings=profile)


@pytest.fixture
def stage(database: Database) -> Iterator[Database]:
    begin(database, 1000)
    yield database


def test_a_lone_returned_piece_does_not_hide_the_fresh_work(stage: Database) -> None:
    first = lend(stage, "a")
    assert first is not None
    stage.write(lambda c: ranges.release(c, STAGE, first.start, first.fencing_token, witness=False))
    again, fresh = lend(stage, "b", rate=1e6), lend(stage, "c")
    assert again is not None and again.start == first.start
    assert fresh is not None and fresh.start >= first.stop


def test_an_idle_worker_steals_the_back_half_and_the_victim_learns_of_it(stage: Database) -> None:
    begin(stage, 100)
    victim = lend(stage, "a", rate=10.0, workers=1)
    assert victim is not None and (victim.start, victim.stop) == (0, 50)
    quick = lend(stage, "q", rate=1e6)
    assert quick is not None and (quick.start, quick.stop) == (50, 100)
    thief = lend(stage, "b")
    assert thief is not None and (thief.start, thief.stop) == (25, 50), "from the one with most seconds of work left"
    assert report(stage, victim, 0, 50) == RangePosition(25, 25)
    assert report(stage, thief, 25, 50) == RangePosition(50, 50)
    assert report(stage, quick, 50, 100) == RangePosition(100, 100)
    assert stage.write(lambda c: ranges.close(c, STAGE))


def test_a_straggler_gets_a_twin_and_the_first_result_wins(stage: Database, clock: Any) -> None:
    begin(stage, 1)
    slow = lend(stage, "slow")
    assert slow is not None and lend(stage, "idle") is None
    clock.now += 4.0
    rescue = lend(stage, "idle")
    assert rescue is not None and rescue.fencing_token == slow.fencing_token
    assert lend(stage, "third") is None, "at most one speculative lease"
    assert report(stage, rescue, 0, 1) == RangePosition(1, 1)
    assert report(stage, slow, 0, 1) == RangePosition(1, 1), "the slow one hears that it is done"
    assert len(rows(stage, "SELECT * FROM segments")) == 1


def test_batched_innocents_are_not_condemned_for_a_killer_in_their_midst(stage: Database) -> None:
    begin(stage, 40)
    crashes = 0
    poisoned: list[int] = []
    while (lease := lend(stage, "d", rate=1e6, workers=1)) is not None:
        cursor = lease.cursor
        while cursor < lease.stop:
            to = cursor + 1 if cursor <= lease.careful else lease.stop
            if cursor <= 20 < to:  # task 20 kills its worker before the batch is sent
                crashes += 1
                back = stage.write(
                    lambda c, at=lease: ranges.release(c, STAGE, at.start, at.fencing_token, task=20, witness=True)
                )
                if back.strikes >= STRIKES:
                    poisoned.append(back.cursor)
                    segment = Segment(
                        start=back.cursor, stop=back.cursor + 1, object="crashed", offset=0, bytes=1, crc32=0, failed=1
                    )
                    stage.write(lambda c, s=segment, b=back: ranges.settle(c, STAGE, b.stop, s))
                break
            place = report(stage, lease, cursor, to)
            assert place is not None
            cursor = place.cursor
    assert poisoned == [20] and crashes == 1 + STRIKES


def test_a_silence_is_never_a_strike(stage: Database, clock: Any) -> None:
    begin(stage, 1)
    for expiries in range(1, 6):
        lease = lend(stage, "d")
        assert lease is not None
        back = stage.write(
            lambda c, at=lease: ranges.release(c, STAGE, at.start, at.fencing_token, task=0, witness=False)
        )
        assert (back.strikes, back.expiries) == (0, expiries)


def test_what_the_platform_ended_counts_as_nothing(stage: Database) -> None:
    lease = lend(stage, "d")
    assert lease is not None
    back = stage.write(
        lambda c: ranges.release(c, STAGE, lease.start, lease.fencing_token, task=3, witness=False, blame=False)
    )
    assert (back.strikes, back.expiries) == (0, 0)
    again = lend(stage, "d")
    assert again is not None and again.careful == -1


def test_a_closed_stage_refuses_every_report(stage: Database) -> None:
    lease = lend(stage, "d")
    assert lease is not None
    stage.write(lambda c: ranges.close_early(c, SIMULATION))
    assert report(stage, lease, lease.cursor, lease.stop) is None
    assert lend(stage, "e") is None


def test_ranges_are_cut_at_multiples_of_the_stage_s_alignment(stage: Database) -> None:
    begin(stage, 1000, align=16)
    leases = [lend(stage, f"d{n}", rate=3.0, workers=3) for n in range(6)]
    assert all(lease is not None and lease.start % 16 == 0 for lease in leases)
