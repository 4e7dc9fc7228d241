"""Admission of queued simulations to executors: first come, first served, without starvation."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from core.domain.scheduling.admission import (
    AHEAD,
    MOST_ASIDE,
    AdmissionQueue,
    FreeCapacity,
    QueuedSimulation,
    why_waiting,
)
from core.domain.scheduling.executor_config import ExecutorConfig


def executor(name: str, free: int, total: int = 4, *, healthy: bool = True, max_workers: int = 0) -> FreeCapacity:
    return FreeCapacity(ExecutorConfig(name=name, kind="fake", workers=total, max_workers=max_workers), free, healthy)


def admitted_ids(queue: list[QueuedSimulation], free: int, total: int = 4, now: float = 100.0) -> list[str]:
    return [id for id, _ in AdmissionQueue(queue).admit([executor("here", free, total)], now)]


def executors_by_simulation(queue: list[QueuedSimulation], *executors: FreeCapacity) -> dict[str, str]:
    return dict(AdmissionQueue(queue).admit(executors, 100.0))


def test_simulations_are_admitted_first_come_first_served() -> None:
    assert admitted_ids(
        [QueuedSimulation("b", 2, 2.0), QueuedSimulation("a", 2, 1.0), QueuedSimulation("c", 2, 3.0)], 4
    ) == [
        "a",
        "b",
    ]


def test_a_simulation_with_many_workers_holds_back_later_simulations() -> None:
    assert admitted_ids([QueuedSimulation("wide", 4, 1.0), QueuedSimulation("narrow", 1, 2.0)], 3) == []


def test_a_simulation_that_requests_more_workers_than_exist_gets_all() -> None:
    assert admitted_ids([QueuedSimulation("huge", 64, 1.0)], 4) == ["huge"]


def test_a_model_check_is_admitted_ahead_of_the_queue() -> None:
    assert admitted_ids([QueuedSimulation("wide", 4, 1.0), QueuedSimulation("check", 1, 2.0, brief=True)], 0) == [
        "check"
    ]


def test_a_simulation_in_back_off_does_not_hold_back_others() -> None:
    assert admitted_ids([QueuedSimulation("later", 4, 1.0, not_before=200.0), QueuedSimulation("now", 1, 2.0)], 4) == [
        "now"
    ]


def test_a_model_check_in_back_off_waits() -> None:
    assert admitted_ids([QueuedSimulation("check", 1, 2.0, not_before=200.0, brief=True)], 0) == []


def test_a_simulation_goes_to_the_executor_with_most_free_workers() -> None:
    assert executors_by_simulation(
        [QueuedSimulation("a", 2, 1.0), QueuedSimulation("b", 2, 2.0)], executor("east", 2), executor("west", 3)
    ) == {
        "a": "west",
        "b": "east",
    }


def test_a_simulation_goes_to_the_executor_of_its_placement() -> None:
    assert executors_by_simulation(
        [QueuedSimulation("a", 1, 1.0, executor="east")], executor("east", 1), executor("west", 4)
    ) == {"a": "east"}


def test_a_simulation_for_an_unhealthy_executor_does_not_hold_back_others() -> None:
    queue = [QueuedSimulation("a", 1, 1.0, executor="east"), QueuedSimulation("b", 1, 2.0)]
    assert executors_by_simulation(queue, executor("east", 4, healthy=False), executor("west", 4)) == {"b": "west"}


def test_a_large_simulation_blocks_only_executors_that_could_run_it() -> None:
    queue = [
        QueuedSimulation("wide", 4, 1.0, executor="east"),
        QueuedSimulation("b", 1, 2.0),
        QueuedSimulation("c", 1, 3.0, executor="east"),
    ]
    assert executors_by_simulation(queue, executor("east", 3), executor("west", 1)) == {"b": "west"}


def test_a_request_for_all_workers_goes_to_the_largest_executor() -> None:
    assert executors_by_simulation(
        [QueuedSimulation("a", None, 1.0)], executor("small", 2, 2), executor("large", 64, 64)
    ) == {"a": "large"}
    assert executors_by_simulation(
        [QueuedSimulation("a", None, 1.0)], executor("capped", 64, 64, max_workers=1), executor("small", 2, 2)
    ) == {"a": "small"}


queued_simulations = st.builds(
    QueuedSimulation,
    st.uuids().map(str),
    st.one_of(st.none(), st.integers(1, 9)),
    st.floats(0, 9),
    st.sampled_from([0.0, 200.0]),
    st.booleans(),
    st.sampled_from(["", "east", "west", "nowhere"]),
)
executor_pairs = st.tuples(
    st.builds(
        lambda total, used, healthy: executor("east", max(0, total - used), total, healthy=healthy),
        st.integers(1, 8),
        st.integers(0, 8),
        st.booleans(),
    ),
    st.builds(
        lambda total, used, healthy: executor("west", max(0, total - used), total, healthy=healthy),
        st.integers(1, 8),
        st.integers(0, 8),
        st.booleans(),
    ),
)


@given(st.lists(queued_simulations, max_size=12), executor_pairs)
def test_no_executor_gets_more_than_its_free_workers(
    queue: list[QueuedSimulation], executors: tuple[FreeCapacity, ...]
) -> None:
    free = {executor.config.name: executor.free for executor in executors}
    executor_configs = {executor.config.name: executor.config for executor in executors if executor.healthy}
    by_id = {simulation.id: simulation for simulation in queue}
    for id, name in AdmissionQueue(queue).admit(executors, 100.0):
        simulation = by_id[id]
        assert simulation.executor in {"", name} and simulation.not_before <= 100.0
        if not simulation.brief:
            free[name] -= executor_configs[name].workers_for(simulation.requested)
    assert all(workers >= 0 for workers in free.values())


@given(st.lists(queued_simulations, max_size=12), executor_pairs)
def test_no_simulation_is_overtaken_by_a_later_simulation_that_takes_its_workers(
    queue: list[QueuedSimulation], executors: tuple[FreeCapacity, ...]
) -> None:
    executor_of = dict(AdmissionQueue(queue).admit(executors, 100.0))
    healthy = {executor.config.name for executor in executors if executor.healthy}
    for simulation in queue:
        usable = {name for name in healthy if simulation.executor in {"", name}}
        if simulation.brief or simulation.not_before > 100.0 or simulation.id in executor_of or not usable:
            continue
        later = [
            later_simulation
            for later_simulation in queue
            if (later_simulation.submitted_at, later_simulation.id) > (simulation.submitted_at, simulation.id)
        ]
        assert not [
            later_simulation.id
            for later_simulation in later
            if not later_simulation.brief and executor_of.get(later_simulation.id) in usable
        ]


def admit_by_looking_at_every_simulation(
    queue: Iterable[QueuedSimulation], capacities: Iterable[FreeCapacity], now: float
) -> Iterator[tuple[str, str]]:
    """The rule of admission, as plainly as it can be said: the reference of the incremental queue."""
    healthy = [capacity for capacity in capacities if capacity.healthy]
    configs = {capacity.config.name: capacity.config for capacity in healthy}
    free = {capacity.config.name: capacity.free for capacity in healthy}
    blocked: set[str] = set()
    for item in sorted(queue, key=lambda item: (item.submitted_at, item.id)):
        executors = [
            name for name in free if item.executor in {"", name} and (item.eligible is None or name in item.eligible)
        ]
        if item.not_before > now or not executors:
            continue
        if item.brief:
            yield item.id, max(executors, key=lambda name: free[name])
            continue
        open_ = [name for name in executors if name not in blocked]
        fits = [name for name in open_ if configs[name].workers_for(item.requested) <= free[name]]
        if fits:
            chosen = max(fits, key=lambda name: (configs[name].workers_for(item.requested), free[name]))
            free[chosen] -= configs[chosen].workers_for(item.requested)
            yield item.id, chosen
        else:
            blocked.update(executors)


class QueueAgainstReference(RuleBasedStateMachine):
    """Simulations come, change and go while time passes; each decision is the decision of the reference."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = AdmissionQueue()
        self.queued: dict[str, QueuedSimulation] = {}
        self.now = 100.0

    @rule(
        item=queued_simulations,
        id=st.sampled_from("abcdefghijkl"),
        pause=st.sampled_from([0.0, 5.0, 50.0]),
        eligible=st.sampled_from([None, frozenset({"east"}), frozenset({"west"}), frozenset[str]()]),
    )
    def put(self, item: QueuedSimulation, id: str, pause: float, eligible: frozenset[str] | None) -> None:
        self.queued[id] = replace(item, id=id, not_before=self.now + pause, eligible=eligible)
        self.queue.put(self.queued[id])

    @rule(id=st.sampled_from("abcdefghijkl"))
    def discard(self, id: str) -> None:
        self.queued.pop(id, None)
        self.queue.discard(id)

    @rule(seconds=st.floats(0.0, 20.0))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(executors=executor_pairs, leave=st.booleans())
    def admit(self, executors: tuple[FreeCapacity, ...], leave: bool) -> None:
        admitted = self.queue.admit(executors, self.now)
        assert admitted == list(admit_by_looking_at_every_simulation(self.queued.values(), executors, self.now))
        for id, _ in admitted if leave else ():
            self.discard(id)

    @invariant()
    def same_simulations(self) -> None:
        assert set(self.queue) == set(self.queued) and len(self.queue) == len(self.queued)


test_every_decision_is_that_of_a_look_at_the_whole_queue = QueueAgainstReference.TestCase


def test_a_queued_simulation_has_a_reason() -> None:
    assert why_waiting(3, 2, 0.0, None) == "waits its turn: 2 before it"
    assert why_waiting(1, 2, -5.0, "its processes vanished") == "waits for 2 free workers"
    assert why_waiting(1, 2, 4.0, "its processes vanished") == "tried again in 4 s; its processes vanished"


def test_a_simulation_that_is_not_prepared_takes_no_workers_and_holds_nobody_back() -> None:
    queue = AdmissionQueue([QueuedSimulation("slow", 4, 1.0), QueuedSimulation("b", 4, 2.0)])
    assert queue.admit([executor("here", 4)], 100.0, lambda id, _: id != "slow") == [("b", "here")]
    asked: list[str] = []

    def ready(id: str, _: str) -> bool:
        asked.append(id)
        return True

    queue.discard("b")
    assert queue.admit([executor("here", 4)], 100.0, ready) == [] and asked == []  # aside, until its row changes
    queue.put(QueuedSimulation("slow", 4, 1.0, prepared=True))
    assert queue.prepared == 1
    assert queue.admit([executor("here", 4)], 100.0, ready) == [("slow", "here")]
    queue.discard("slow")
    assert queue.prepared == 0 and len(queue) == 0


def test_a_prepared_simulation_returns_to_its_place_in_the_queue() -> None:
    queue = AdmissionQueue([QueuedSimulation(id, 4, float(at)) for at, id in enumerate("abc")])
    assert queue.admit([executor("here", 4)], 100.0, lambda id, _: id != "a") == [("b", "here")]
    queue.discard("b")
    queue.put(QueuedSimulation("a", 4, 0.0, prepared=True))
    assert queue.admit([executor("here", 4)], 100.0) == [("a", "here")]


def test_those_that_wait_for_workers_are_looked_at_once_and_only_the_next() -> None:
    queue = AdmissionQueue([QueuedSimulation(f"{number:03}", 4, float(number)) for number in range(3 * AHEAD)])
    asked: list[str] = []

    def ready(id: str, _: str) -> bool:
        asked.append(id)
        return False

    busy = [executor("here", 0)]
    assert queue.admit(busy, 100.0, ready) == []
    assert asked == [f"{number:03}" for number in range(AHEAD)]
    asked.clear()
    for number in range(AHEAD):
        queue.put(QueuedSimulation(f"{number:03}", 4, float(number), prepared=True))
    assert queue.admit(busy, 100.0, lambda *asking: asked.append(asking[0]) is None) == []
    assert len(asked) == AHEAD
    asked.clear()
    assert queue.admit(busy, 100.0, ready) == [] and asked == []


def test_one_decision_sets_a_bounded_number_aside() -> None:
    queue = AdmissionQueue([QueuedSimulation(f"{number:03}", 1, float(number)) for number in range(2 * MOST_ASIDE + 1)])
    sizes = []
    for _ in range(3):
        asked: list[str] = []
        queue.admit([executor("here", 4)], 100.0, lambda *asking, asked=asked: asked.append(asking[0]))  # type: ignore[misc,func-returns-value]
        sizes.append(len(asked))
    assert sizes == [MOST_ASIDE, MOST_ASIDE, 1]
