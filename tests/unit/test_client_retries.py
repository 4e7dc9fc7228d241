"""Retry policy of the Python client: whether a request is sent again, and after how many seconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel import retries

ATTEMPTS = st.integers(1, 60)
SHARES = st.floats(0, 1)


@given(ATTEMPTS, SHARES)
def test_pauses_grow_to_a_limit_and_spread(attempt: int, jitter: float) -> None:
    pause = retries.pause(attempt, elapsed=0.0, patience=1e9, jitter=jitter)
    assert pause is not None
    full = min(0.25 * 2 ** (attempt - 1), retries.LONGEST_PAUSE)
    assert full / 2 <= pause <= full


@given(ATTEMPTS, SHARES, st.floats(0, 200), st.floats(0, 100))
def test_no_pause_ends_after_the_patience(attempt: int, jitter: float, elapsed: float, patience: float) -> None:
    pause = retries.pause(attempt, elapsed=elapsed, patience=patience, jitter=jitter)
    assert pause is None or elapsed + pause <= patience


@given(ATTEMPTS, SHARES, st.floats(0, 30))
def test_the_platforms_wish_is_a_lower_bound(attempt: int, jitter: float, seconds: float) -> None:
    pause = retries.pause(attempt, elapsed=0.0, patience=100.0, retry_after=seconds, jitter=jitter)
    assert pause is not None
    assert pause >= seconds


def test_a_wish_beyond_the_patience_gives_up_at_once() -> None:
    assert retries.pause(1, elapsed=0.0, patience=60.0, retry_after=3600.0) is None


@pytest.mark.parametrize(
    ("status", "repeatable", "again"),
    [
        (200, True, False),
        (400, True, False),
        (401, True, False),
        (404, True, False),
        (409, True, False),
        (429, True, True),
        (429, False, True),
        (500, True, False),
        (502, True, True),
        (502, False, False),
        (503, True, True),
        (503, False, True),
        (504, True, True),
        (504, False, False),
    ],
)
def test_a_request_that_may_have_been_served_is_sent_again_only_if_it_is_repeatable(
    status: int, repeatable: bool, again: bool
) -> None:
    assert retries.after_status(status, repeatable=repeatable) is again


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("5", 5.0),
        ("0", 0.0),
        ("-3", 0.0),
        ("Fri, 01 Jan 2027 00:00:00 GMT", None),
        ("x", None),
    ],
)
def test_seconds_of_retry_after(header: str | None, seconds: float | None) -> None:
    assert retries.seconds_of(header) == seconds
