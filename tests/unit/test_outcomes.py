"""Outcome of a simulation: SUCCEEDED with at least one task that is ok, else FAILED with the commonest reason."""

from hypothesis import given
from hypothesis import strategies as st

from core.domain.results.outcomes import DISTINCT, SHOWN, ErrorTally, outcome_of
from core.domain.scheduling.states import State


def tally(*errors: tuple[str, str | None]) -> ErrorTally:
    counted = ErrorTally()
    for status, error in errors:
        counted.add(status, error)
    return counted


def test_one_task_that_is_ok_is_enough_to_succeed() -> None:
    assert outcome_of(None, 3, 2, tally(("failed", "no"), ("failed", "no"))) == (State.SUCCEEDED, None)


def test_a_simulation_without_a_task_that_is_ok_fails_with_the_commonest_reason_and_its_count() -> None:
    errors = tally(("crashed", "No module named 'torch'"), ("timed_out", None), ("crashed", "No module named 'torch'"))
    assert outcome_of(None, 3, 3, errors) == (
        State.FAILED,
        "none of its 3 tasks is ok; most often, 2 times: crashed: No module named 'torch'",
    )


def test_a_reason_that_all_tasks_share_is_said_of_each() -> None:
    assert outcome_of(None, 2, 2, tally(("timed_out", None), ("timed_out", None))) == (
        State.FAILED,
        "none of its 2 tasks is ok; each: timed_out",
    )
    assert outcome_of(None, 1, 1, tally(("failed", "no"))) == (State.FAILED, "its only task is not ok: failed: no")


def test_max_failures_stays_the_reason_where_it_is_given() -> None:
    errors = tally(("failed", "no"), ("failed", "no"))
    assert outcome_of(1, 2, 2, errors) == (State.FAILED, "2 tasks failed; max_failures is 1")
    assert outcome_of(2, 2, 2, errors)[0] is State.FAILED, "no task is ok"
    assert outcome_of(2, 3, 2, errors) == (State.SUCCEEDED, None)


def test_a_long_error_keeps_its_beginning_and_the_end_where_a_traceback_says_what_happened() -> None:
    said = "FileNotFoundError: [Errno 2] No such file or directory: 'mesh.vtk'"
    trace = "rank 1 exited with status 1; its last lines: " + 'File "model.py", line 1 | ' * 50 + said
    state, reason = outcome_of(None, 1, 1, tally(("crashed", trace)))
    assert state is State.FAILED and reason is not None
    shown = reason.removeprefix("its only task is not ok: crashed: ")
    assert shown.startswith("rank 1 exited with status 1; ") and "…" in shown and shown.endswith(said)
    assert len(shown) == SHOWN


@given(st.lists(st.tuples(st.sampled_from(["failed", "crashed"]), st.text(max_size=2000)), min_size=1))
def test_the_commonest_reason_is_never_longer_or_more_frequent_than_what_was_counted(
    errors: list[tuple[str, str]],
) -> None:
    commonest = tally(*errors).commonest
    assert commonest is not None
    text, count = commonest
    assert 1 <= count <= len(errors) and len(text) <= 520


def test_the_memory_of_the_count_is_bounded_for_errors_that_all_differ() -> None:
    errors = ErrorTally()
    for number in range(3 * DISTINCT):
        errors.add("failed", f"step {number}")
    assert errors.commonest == ("failed, for other reasons", 2 * DISTINCT)
    assert len(errors._counts) <= DISTINCT + 1
