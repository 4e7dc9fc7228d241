"""World count: a request is never for more worlds than an action's deadline allows, and for one soon after a fault."""

from hypothesis import given
from hypothesis import strategies as st

from core.domain.submissions import submission
from runtimes.harness.evaluator.world_count import (
    FIRST_PENALTY,
    LATEST_REQUESTS,
    LEAST_PATIENCE,
    MOST_PATIENCE,
    MOST_PENALTY,
    PATIENCE_SHARE,
    SHARE,
    USUAL,
    WORTHWHILE_CALLS,
    WORTHWHILE_SECONDS,
    WorldCount,
)
from runtimes.harness.task_page import MOST_WORLDS

DEADLINE = 1.0
#: What happens to a request: None for a fault, or the seconds of a world.
events = st.lists(st.none() | st.floats(0.0, 10.0), max_size=200)
#: Seconds of a task by itself, and of its requests; how many tasks are left.
tasks = st.tuples(st.floats(0.0, 100.0), st.lists(st.floats(0.0, 0.04), min_size=1, max_size=5))
lefts = st.integers(2, 10**6)


def after(happened: list[float | None], most: int | None = MOST_WORLDS) -> WorldCount:
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


def after_task(task: tuple[float, list[float]], most: int | None) -> WorldCount:
    count = WorldCount(most, DEADLINE)
    count.record_task(*task)
    count.record_alone()
    return count


@given(events, st.none() | st.integers(1, MOST_WORLDS), st.integers(1, 10**6))
def test_kernels_are_not_compared_for_one_world_or_one_task(
    happened: list[float | None], most: int | None, left: int
) -> None:
    count = after(happened, most)
    assert count.patience(1) is None
    if count.worlds == 1:
        assert count.patience(left) is None


@given(tasks, st.integers(2, MOST_WORLDS), lefts)
def test_a_comparison_takes_a_tenth_of_the_rest_between_two_seconds_and_ten(
    task: tuple[float, list[float]], most: int, left: int
) -> None:
    patience = after_task(task, most).patience(left)
    assert patience is not None and LEAST_PATIENCE <= patience <= MOST_PATIENCE
    assert patience in {LEAST_PATIENCE, MOST_PATIENCE, PATIENCE_SHARE * (left * task[0])}


@given(tasks, lefts)
def test_auto_compares_kernels_only_where_the_rest_takes_longer(task: tuple[float, list[float]], left: int) -> None:
    seconds, latencies = task
    worthwhile = left * seconds >= WORTHWHILE_SECONDS and left * seconds >= WORTHWHILE_CALLS * min(latencies)
    expected = after_task(task, USUAL).patience(left) if worthwhile else None
    assert after_task(task, None).patience(left) == expected


@given(tasks, lefts, st.integers(0, 10**6))
def test_what_is_worthwhile_for_few_tasks_is_for_more(task: tuple[float, list[float]], left: int, further: int) -> None:
    count = after_task(task, None)
    if (patience := count.patience(left)) is not None:
        more = count.patience(left + further)
        assert more is not None and more >= patience


def test_the_last_task_by_itself_is_what_the_rest_is_judged_by() -> None:
    count = after_task((0.0, [0.0]), None)
    assert count.patience(100) is None
    for task, patience in [
        ((0.002, [0.001, 1e-5]), LEAST_PATIENCE),  # 0.2 s, and 600 of its fastest calls are 0.006 s
        ((0.002, [0.001]), None),  # 0.6 s
        ((0.0005, [1e-5]), None),
        ((0.5, [1e-5]), 5.0),
        ((0.5, []), 5.0),  # a task that fails before its first request tells nothing of requests
        ((7.0, [1e-5]), MOST_PATIENCE),
    ]:
        count.record_task(*task)
        assert count.patience(100) == patience


def test_a_model_server_of_one_world_is_not_asked_again() -> None:
    count = after_task((1.0, [1e-5]), None)
    assert count.patience(100) is not None and count.worlds > 1
    count.stay_alone()
    assert count.patience(100) is None and count.worlds == 1 and count.most == USUAL


def test_scenarios_of_one_step_have_more_worlds_unless_a_number_was_asked_for() -> None:
    assert [WorldCount(None, 1.0, one_step=one_step).most for one_step in (False, True)] == [16, 32]
    assert [WorldCount(7, 1.0, one_step=one_step).most for one_step in (False, True)] == [7, 7]


def test_a_submission_may_ask_for_as_many_worlds_as_a_worker_plays() -> None:
    assert submission.MOST_WORLDS == MOST_WORLDS
