"""World count: a request is never for more worlds than an action's deadline allows, and for one soon after a fault."""

from hypothesis import given
from hypothesis import strategies as st

from core.domain.submissions import submission
from runtimes.harness.evaluator.world_count import FIRST_PENALTY, LATEST_REQUESTS, MOST_PENALTY, SHARE, WorldCount
from runtimes.harness.task_page import MOST_WORLDS

DEADLINE = 1.0
#: What happens to a request: None for a fault, or the seconds of a world.
events = st.lists(st.none() | st.floats(0.0, 10.0), max_size=200)


def after(happened: list[float | None], most: int = MOST_WORLDS) -> WorldCount:
    count = WorldCount(most, DEADLINE)
    for seconds in happened:
        worlds = count.worlds
        if seconds is None:
            count.record_fault(together=worlds > 1)
        else:
            count.record_answer(worlds, seconds * worlds)
            if worlds == 1:
                count.record_alone()
    return count


@given(events, st.integers(1, MOST_WORLDS))
def test_a_request_is_for_one_world_or_as_many_as_its_time_allows(happened: list[float | None], most: int) -> None:
    worlds = after(happened, most).worlds
    assert 1 <= worlds <= most
    if worlds > 1:
        recent = happened[-LATEST_REQUESTS:]
        since = max((at + 1 for at, seconds in enumerate(recent) if seconds is None), default=0)
        fastest = min(seconds for seconds in recent[since:] if seconds is not None)
        assert worlds * fastest <= SHARE * DEADLINE * (1 + 1e-9)


@given(events, st.lists(st.floats(0.0, 1.0), max_size=FIRST_PENALTY - 1))
def test_after_a_fault_the_next_tasks_are_run_one_by_one(happened: list[float | None], following: list[float]) -> None:
    assert after([*happened, None, *following]).worlds == 1


@given(events)
def test_one_world_stays_one(happened: list[float | None]) -> None:
    assert after(happened, most=1).worlds == 1


def test_a_request_that_waited_for_a_processor_does_not_lower_the_number() -> None:
    count = after([1e-5] * 20)
    for _ in range(LATEST_REQUESTS - 1):
        count.record_answer(count.worlds, 10.0)
        assert count.worlds == MOST_WORLDS
    count.record_answer(count.worlds, 10.0)
    assert count.worlds < MOST_WORLDS, "all of the last requests were slow"


def test_each_fault_of_a_request_for_many_doubles_the_tasks_that_are_run_by_themselves() -> None:
    count, alone = after([]), []
    for _ in range(12):
        count.record_fault(together=True)
        alone.append(0)
        while count.worlds == 1:
            count.record_answer(1, 1e-5)
            count.record_alone()
            alone[-1] += 1
    assert alone == [min(MOST_PENALTY, 2 * FIRST_PENALTY << fault) for fault in range(12)]


def test_the_number_doubles_while_requests_are_fast() -> None:
    count, sizes = after([1e-5]), []
    for _ in range(8):
        sizes.append(count.worlds)
        count.record_answer(count.worlds, 1e-5 * count.worlds)
    assert sizes == [2, 4, 8, 16, 32, 64, 64, 64]


def test_a_submission_may_ask_for_as_many_worlds_as_a_worker_plays() -> None:
    assert submission.MOST_WORLDS == MOST_WORLDS
