"""Frame sharing: a frame never holds more tasks than its time allows, and none share one soon after a fault."""

from hypothesis import given
from hypothesis import strategies as st

from runtimes.harness.evaluator.frame_sharing import ALONE, LOOKED_AT, MOST_ALONE, TARGET, FrameSharing
from runtimes.harness.model_server.action_exchange import MOST_SHARED

#: What happens to a frame: None for a fault, or the seconds of a task.
events = st.lists(st.none() | st.floats(0.0, 10.0), max_size=200)


def after(happened: list[float | None], *, allowed: bool = True) -> FrameSharing:
    sharing = FrameSharing(allowed=allowed)
    for seconds in happened:
        if seconds is None:
            sharing.failed(shared=sharing.tasks > 1)
        else:
            sharing.ran(sharing.tasks, seconds * sharing.tasks)
    return sharing


@given(events)
def test_a_frame_holds_one_task_or_as_many_as_its_time_allows(happened: list[float | None]) -> None:
    tasks = after(happened).tasks
    assert 1 <= tasks <= MOST_SHARED
    if tasks > 1:
        recent = happened[-LOOKED_AT:]
        since = max((at + 1 for at, seconds in enumerate(recent) if seconds is None), default=0)
        fastest = min(seconds for seconds in recent[since:] if seconds is not None)
        assert tasks * fastest <= TARGET * (1 + 1e-9)


@given(events, st.lists(st.floats(0.0, 1.0), max_size=ALONE - 1))
def test_after_a_fault_the_next_tasks_are_run_one_by_one(happened: list[float | None], following: list[float]) -> None:
    assert after([*happened, None, *following]).tasks == 1


@given(events)
def test_tasks_of_worlds_with_more_steps_never_share(happened: list[float | None]) -> None:
    assert after(happened, allowed=False).tasks == 1


def test_a_frame_that_waited_for_a_processor_does_not_end_the_sharing() -> None:
    sharing = after([1e-5] * (ALONE + 10))
    for _ in range(LOOKED_AT - 1):
        sharing.ran(sharing.tasks, 0.01)
        assert sharing.tasks == MOST_SHARED
    sharing.ran(sharing.tasks, 0.01)
    assert sharing.tasks < MOST_SHARED, "all of the last frames were slow"


def test_each_fault_of_a_shared_frame_doubles_the_tasks_that_are_run_by_themselves() -> None:
    sharing, alone = FrameSharing(allowed=True), []
    for _ in range(12):
        sharing.failed(shared=True)
        alone.append(0)
        while sharing.tasks == 1:
            sharing.ran(1, 1e-5)
            alone[-1] += 1
    assert alone == [min(MOST_ALONE, 2 * ALONE << fault) for fault in range(12)]


def test_the_number_doubles_while_tasks_are_fast() -> None:
    sharing, sizes = after([1e-5] * ALONE), []
    for _ in range(7):
        sizes.append(sharing.tasks)
        sharing.ran(sharing.tasks, 1e-5 * sharing.tasks)
    assert sizes == [2, 4, 8, 16, 32, 32, 32]
