"""Admission: first come, first served, without starvation."""

from hypothesis import given
from hypothesis import strategies as st

from core.domain.admission import FreeCapacity, QueuedSimulation, admit, why_waiting
from core.domain.executor_config import ExecutorConfig


def room(name: str, free: int, total: int = 4, *, healthy: bool = True, max_workers: int = 0) -> FreeCapacity:
    return FreeCapacity(ExecutorConfig(name=name, kind="fake", workers=total, max_workers=max_workers), free, healthy)


def ids(queue: list[QueuedSimulation], free: int, total: int = 4, now: float = 100.0) -> list[str]:
    return [item.id for item, _ in admit(queue, [room("here", free, total)], now)]


def places(queue: list[QueuedSimulation], *rooms: FreeCapacity) -> dict[str, str]:
    return {item.id: name for item, name in admit(queue, rooms, 100.0)}


def test_simulations_are_admitted_first_come_first_served() -> None:
    assert ids([QueuedSimulation("b", 2, 2.0), QueuedSimulation("a", 2, 1.0), QueuedSimulation("c", 2, 3.0)], 4) == [
        "a",
        "b",
    ]


def test_a_simulation_with_many_workers_holds_back_later_simulations() -> None:
    assert ids([QueuedSimulation("wide", 4, 1.0), QueuedSimulation("narrow", 1, 2.0)], 3) == []


def test_a_simulation_that_requests_more_workers_than_exist_gets_all() -> None:
    assert ids([QueuedSimulation("huge", 64, 1.0)], 4) == ["huge"]


def test_a_model_check_is_admitted_ahead_of_the_queue() -> None:
    assert ids([QueuedSimulation("wide", 4, 1.0), QueuedSimulation("check", 1, 2.0, brief=True)], 0) == ["check"]


def test_a_simulation_in_back_off_holds_back_no_other() -> None:
    assert ids([QueuedSimulation("later", 4, 1.0, not_before=200.0), QueuedSimulation("now", 1, 2.0)], 4) == ["now"]


def test_a_model_check_in_back_off_waits() -> None:
    assert ids([QueuedSimulation("check", 1, 2.0, not_before=200.0, brief=True)], 0) == []


def test_a_simulation_goes_to_the_executor_with_most_free_workers() -> None:
    assert places([QueuedSimulation("a", 2, 1.0), QueuedSimulation("b", 2, 2.0)], room("east", 2), room("west", 3)) == {
        "a": "west",
        "b": "east",
    }


def test_a_simulation_goes_to_the_executor_of_its_placement() -> None:
    assert places([QueuedSimulation("a", 1, 1.0, executor="east")], room("east", 1), room("west", 4)) == {"a": "east"}


def test_a_simulation_for_an_unhealthy_executor_holds_back_no_other() -> None:
    queue = [QueuedSimulation("a", 1, 1.0, executor="east"), QueuedSimulation("b", 1, 2.0)]
    assert places(queue, room("east", 4, healthy=False), room("west", 4)) == {"b": "west"}


def test_a_large_simulation_holds_back_only_executors_that_could_run_it() -> None:
    queue = [
        QueuedSimulation("wide", 4, 1.0, executor="east"),
        QueuedSimulation("b", 1, 2.0),
        QueuedSimulation("c", 1, 3.0, executor="east"),
    ]
    assert places(queue, room("east", 3), room("west", 1)) == {"b": "west"}


def test_a_request_for_all_workers_goes_to_the_largest_executor() -> None:
    assert places([QueuedSimulation("a", None, 1.0)], room("small", 2, 2), room("large", 64, 64)) == {"a": "large"}
    assert places([QueuedSimulation("a", None, 1.0)], room("capped", 64, 64, max_workers=1), room("small", 2, 2)) == {
        "a": "small"
    }


waiting = st.builds(
    QueuedSimulation,
    st.uuids().map(str),
    st.one_of(st.none(), st.integers(1, 9)),
    st.floats(0, 9),
    st.sampled_from([0.0, 200.0]),
    st.booleans(),
    st.sampled_from(["", "east", "west", "nowhere"]),
)
rooms = st.tuples(
    st.builds(
        lambda total, used, healthy: room("east", max(0, total - used), total, healthy=healthy),
        st.integers(1, 8),
        st.integers(0, 8),
        st.booleans(),
    ),
    st.builds(
        lambda total, used, healthy: room("west", max(0, total - used), total, healthy=healthy),
        st.integers(1, 8),
        st.integers(0, 8),
        st.booleans(),
    ),
)


@given(st.lists(waiting, max_size=12), rooms)
def test_no_executor_gets_more_than_its_free_workers(
    queue: list[QueuedSimulation], rooms: tuple[FreeCapacity, ...]
) -> None:
    free = {one.config.name: one.free for one in rooms}
    executor_configs = {one.config.name: one.config for one in rooms if one.healthy}
    for item, name in admit(queue, rooms, 100.0):
        assert item.executor in {"", name} and item.not_before <= 100.0
        if not item.brief:
            free[name] -= executor_configs[name].workers_for(item.requested)
    assert all(left >= 0 for left in free.values())


@given(st.lists(waiting, max_size=12), rooms)
def test_no_simulation_is_overtaken_by_one_that_takes_its_workers(
    queue: list[QueuedSimulation], rooms: tuple[FreeCapacity, ...]
) -> None:
    started = {item.id: name for item, name in admit(queue, rooms, 100.0)}
    well = {one.config.name for one in rooms if one.healthy}
    for one in queue:
        able = {name for name in well if one.executor in {"", name}}
        if one.brief or one.not_before > 100.0 or one.id in started or not able:
            continue
        later = [other for other in queue if (other.submitted_at, other.id) > (one.submitted_at, one.id)]
        assert not [other.id for other in later if not other.brief and started.get(other.id) in able]


def test_a_queued_simulation_has_a_reason() -> None:
    assert why_waiting(3, 2, 0.0, None) == "waits its turn: 2 before it"
    assert why_waiting(1, 2, -5.0, "its processes vanished") == "waits for 2 free workers"
    assert why_waiting(1, 2, 4.0, "its processes vanished") == "tried again in 4 s; its processes vanished"
