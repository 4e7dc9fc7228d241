"""Submission failures: the dispatcher's table has an action for every error that an executor may raise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import errors
from common.errors import (
    ClusterFull,
    LaunchRefused,
    NotGranted,
    NotPrepared,
    OriginFailed,
    PlatformError,
    StorageFull,
    Unsupported,
)
from workers.executors.base import Missed
from workers.submission_failures import COVERED, FAILURES, failure_of

PLATFORM_ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PlatformError)]


@given(kind=st.sampled_from([*PLATFORM_ERRORS, OSError, TimeoutError, ConnectionError, Missed]), attempt=st.integers(1))
def test_every_error_of_an_executor_has_an_action_at_every_attempt(kind: type[Exception], attempt: int) -> None:
    assert issubclass(kind, COVERED)
    failure = failure_of(kind("reason"), attempt)
    assert isinstance(kind("reason"), failure.errors)
    assert "reason" in failure.reason.format(error=kind("reason"), executor="east")


@pytest.mark.parametrize(
    "error", [StorageFull(), OriginFailed(), NotPrepared(), ClusterFull(), Missed("gone"), ConnectionError()]
)
def test_a_transient_failure_queues_the_simulation_again(error: Exception) -> None:
    assert failure_of(error, 1).requeue


@pytest.mark.parametrize("error", [LaunchRefused(), Unsupported(), NotGranted()])
def test_a_permanent_refusal_ends_the_simulation(error: Exception) -> None:
    assert not failure_of(error, 1).requeue


def test_a_permission_that_was_lost_later_requeues_the_simulation_after_a_pause() -> None:
    assert failure_of(NotGranted(), 2).requeue
    assert failure_of(NotGranted(), 2).pause > 0


@pytest.mark.parametrize("error", [StorageFull(), OriginFailed(), NotPrepared()])
def test_inputs_that_are_missing_at_a_launch_are_staged_again(error: Exception) -> None:
    assert failure_of(error, 1).staged


def test_only_an_executor_that_answers_but_takes_no_launch_is_paused() -> None:
    assert [row.errors for row in FAILURES if row.pauses_executor] == [(OSError,)]


def test_a_programming_error_is_not_covered() -> None:
    assert not issubclass(ValueError, COVERED)
    with pytest.raises(LookupError, match="ValueError"):
        failure_of(ValueError("a defect"), 1)
