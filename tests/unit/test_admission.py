"""Admission of queued simulations to executors: first come, first served, without starvation."""

from hypothesis import given
from hypothesis import strategies as st

from core.domain.admission import FreeCapacity, QueuedSimulation, admit, why_waiting
from core.domain.executor_config import ExecutorConfig


def executor(name: str, free: int, total: int = 4, *, healthy: bool = True, max_workers: int = 0) -> FreeCapacity:
    return FreeCapacity(ExecutorConfig(name=name, kind="fake", workers=total, max_workers=max_workers), free, healthy)


def admitted_ids(queue: list[QueuedSimulation], free: int, total: int = 4, now: float = 100.0) -> list[str]:
    return [simulation.id for simulation, _ in admit(queue, [executor("here", free, total)], now)]


def executors_by_simulation(queue: list[QueuedSimulation], *executors: FreeCapacity) -> dict[str, str]:
    return {simulation.id: name for simulation, name in admit(queue, executors, 100.0)}


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
    for simulation, name in admit(queue, executors, 100.0):
        assert simulation.executor in {"", name} and simulation.not_before <= 100.0
        if not simulation.brief:
            free[name] -= executor_configs[name].workers_for(simulation.requested)
    assert all(workers >= 0 for workers in free.values())


@given(st.lists(queued_simulations, max_size=12), executor_pairs)
def test_no_simulation_is_overtaken_by_a_later_simulation_that_takes_its_workers(
    queue: list[QueuedSimulation], executors: tuple[FreeCapacity, ...]
) -> None:
    executor_of = {admitted.id: name for admitted, name in admit(queue, executors, 100.0)}
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


def test_a_queued_simulation_has_a_reason() -> None:
    assert why_waiting(3, 2, 0.0, None) == "waits its turn: 2 before it"
    assert why_waiting(1, 2, -5.0, "its processes vanished") == "waits for 2 free workers"
    assert why_waiting(1, 2, 4.0, "its processes vanished") == "tried again in 4 s; its processes vanished"
