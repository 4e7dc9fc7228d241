"""Reservations of workers: launches that load lend them, and no more are in use than there are."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from core.domain.scheduling.admission import AdmissionQueue, FreeCapacity, QueuedSimulation
from core.domain.scheduling.executor_config import ExecutorConfig
from core.domain.scheduling.reservations import IN_USE, LENDERS, LENDING_AGE, Reservation, ReservingLaunch, reserve

HELD, LENT, READY = Reservation.HELD, Reservation.LENT, Reservation.READY
GRANTED, BEGUN = Reservation.GRANTED, Reservation.BEGUN


def launch(
    id: str, reservation: Reservation = HELD, *, workers: int = 1, age: float = LENDING_AGE, lends: bool = True
) -> ReservingLaunch:
    return ReservingLaunch(id, float(ord(id[0])), workers, reservation, age, lends)


def test_a_launch_that_loads_for_long_lends_its_workers_only_while_others_want_them() -> None:
    held = [launch("a", workers=2)]
    assert reserve(held, 2, 0, wanted=False).changes == {}
    reserved = reserve(held, 2, 0, wanted=True)
    assert reserved.changes == {"a": LENT} and reserved.free == 2
    assert reserve([launch("a", age=LENDING_AGE - 0.1)], 1, 0, wanted=True).free == 0
    assert reserve([launch("a", lends=False)], 1, 0, wanted=True).free == 0


def test_a_launch_that_is_ready_comes_before_queued_simulations_and_keeps_its_turn() -> None:
    ready = launch("a", READY, workers=2)
    assert reserve([ready], 2, 0, wanted=True).changes == {"a": GRANTED}
    others = [ready, launch("b", BEGUN), launch("c", READY)]
    waiting = reserve(others, 2, 0, wanted=True)
    assert waiting.changes == {} and waiting.free == 0, "the one free worker is kept for the older launch"


def test_a_granted_launch_does_not_lend_its_workers_again() -> None:
    assert reserve([launch("a", GRANTED, age=99.0)], 1, 0, wanted=True).changes == {}


def test_only_some_launches_load_beside_others() -> None:
    lent = [launch(f"{name}", LENT) for name in "abcdefgh"[:LENDERS]]
    assert reserve([*lent, launch("z")], 2, 0, wanted=True).changes == {}
    assert reserve([*lent, launch("z")], LENDERS + 1, 0, wanted=True).changes == {"z": LENT}


class Machine(RuleBasedStateMachine):
    """An executor whose simulations are prepared, load, run and end at any time."""

    @initialize(total=st.integers(1, 6))
    def begin(self, total: int) -> None:
        self.config = ExecutorConfig(name="here", kind="fake", workers=total, lends=True)
        self.queue = AdmissionQueue()
        self.unprepared: dict[str, QueuedSimulation] = {}
        self.launches: dict[str, ReservingLaunch] = {}
        self.submitted = 0

    @rule(workers=st.none() | st.integers(1, 8), prepared=st.booleans())
    def submit(self, workers: int | None, prepared: bool) -> None:
        self.submitted += 1
        self.queue.put(QueuedSimulation(f"{self.submitted:04}", workers, float(self.submitted), prepared=prepared))

    @precondition(lambda self: self.unprepared)
    @rule(data=st.data())
    def prepare(self, data: st.DataObject) -> None:
        item = self.unprepared.pop(data.draw(st.sampled_from(sorted(self.unprepared))))
        self.queue.put(replace(item, prepared=True))

    @rule(seconds=st.sampled_from([0.5, LENDING_AGE]))
    def wait(self, seconds: float) -> None:
        self.launches = {id: replace(launch, age=launch.age + seconds) for id, launch in self.launches.items()}

    @precondition(lambda self: self.launches)
    @rule(data=st.data())
    def ask_for_a_lease(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.launches)))
        launch = self.launches[id]
        begun = launch.reservation in IN_USE
        reservation = BEGUN if begun else READY
        self.launches[id] = replace(launch, reservation=reservation, lends=launch.lends and not begun)

    @precondition(lambda self: self.launches)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        del self.launches[data.draw(st.sampled_from(sorted(self.launches)))]

    @rule()
    def decide(self) -> None:
        reserved = reserve(self.launches.values(), self.config.workers, 0, wanted=bool(len(self.queue)))
        for id, reservation in reserved.changes.items():
            self.launches[id] = replace(self.launches[id], reservation=reservation)
        seen: dict[str, QueuedSimulation] = {}

        def ready(id: str, executor: str) -> bool:
            item = self.queue.item(id)
            if not item.prepared:
                seen[id] = item
            return item.prepared

        for id, _ in self.queue.admit([FreeCapacity(self.config, reserved.free)], 1e9, ready):
            item = self.queue.item(id)
            self.queue.discard(id)
            workers = self.config.workers_for(item.requested)
            self.launches[id] = ReservingLaunch(id, item.submitted_at, workers, HELD, 0.0, True)
        for id, item in seen.items():
            self.queue.discard(id)
            self.unprepared[id] = item

    @invariant()
    def no_more_workers_are_in_use_than_there_are(self) -> None:
        if hasattr(self, "launches"):
            used = [launch.workers for launch in self.launches.values() if launch.reservation in IN_USE]
            assert sum(used) <= self.config.workers

    def teardown(self) -> None:
        """Everything ends once each launch begins and ends: nobody is forgotten."""
        if not hasattr(self, "launches"):
            return
        for _ in range(4 * self.submitted + 4):
            for id in sorted(self.unprepared):
                self.queue.put(replace(self.unprepared.pop(id), prepared=True))
            self.decide()
            for id, launch in sorted(self.launches.items()):
                if launch.reservation in IN_USE:
                    del self.launches[id]
                else:
                    self.launches[id] = replace(launch, reservation=READY)
        assert not self.launches and not len(self.queue) and not self.unprepared


TestReservations = Machine.TestCase
