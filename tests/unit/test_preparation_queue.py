"""Preparation queue: which queued simulations are prepared next, with room for each kind of job."""

from hypothesis import given
from hypothesis import strategies as st

from core.domain.scheduling.preparation import JOBS, Missing, Preparation
from core.domain.scheduling.preparation_queue import ROOM, PreparationQueue, Unprepared

QUICK, LONG = Preparation.QUICK, Preparation.LONG


def unprepared(id: str, at: float, job: Preparation = QUICK) -> Unprepared:
    return Unprepared(at, id, "here", Missing("its model is unpacked", job))


def begun(queue: PreparationQueue, prepared: int = 0, **under_way: int) -> list[str]:
    return [item.id for item in queue.begin({Preparation(job): n for job, n in under_way.items()}, prepared)]


def test_slow_preparations_keep_no_quick_one_waiting() -> None:
    queue = PreparationQueue()
    for number in range(2 * ROOM):
        queue.put(unprepared(f"slow{number}", float(number), LONG))
    queue.put(unprepared("quick", 999.0))
    assert begun(queue, prepare=ROOM) == ["quick"]


def test_what_waits_is_said_once() -> None:
    queue = PreparationQueue()
    queue.put(unprepared("b", 2.0))
    queue.put(unprepared("a", 1.0))
    assert queue.newly_waiting() == queue.newly_waiting() == ["a", "b"]
    queue.recorded(["a", "b"])
    assert queue.newly_waiting() == []
    queue.discard("a")
    assert begun(queue) == ["b"]


def test_one_whose_beginning_fails_stays_the_next() -> None:
    queue = PreparationQueue()
    for id, at in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        queue.put(unprepared(id, at))
    for item in queue.begin({}, 0):
        if item.id == "b":
            break  # as an error does
    assert begun(queue) == ["b", "c"]


items = st.builds(unprepared, st.sampled_from("abcdefgh"), st.floats(0, 9), st.sampled_from(JOBS))


@given(st.lists(items, max_size=40), st.integers(0, ROOM), st.integers(0, ROOM), st.integers(0, ROOM))
def test_each_kind_begins_in_the_order_of_submission_as_far_as_there_is_room(
    put: list[Unprepared], quick: int, long: int, prepared: int
) -> None:
    queue, last = PreparationQueue(), {item.id: item for item in put}
    for item in put:
        queue.put(item)
    started = list(queue.begin({QUICK: quick, LONG: long}, prepared))
    for job, under_way in ((QUICK, quick), (LONG, long)):
        line = sorted(item for item in last.values() if item.missing.job is job)
        assert [item for item in started if item.missing.job is job] == line[: max(0, ROOM - under_way - prepared)]
    assert sorted(item.id for item in started) + queue.newly_waiting() == sorted(item.id for item in started) + sorted(
        last.keys() - {item.id for item in started}
    )
