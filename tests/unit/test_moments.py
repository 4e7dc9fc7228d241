"""Moments: seconds of rows as times in UTC."""

from datetime import UTC, datetime

from common.moments import moment_of


def test_a_moment_is_in_utc_and_none_is_none() -> None:
    assert moment_of(1.5) == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert moment_of(None) is None


def test_a_moment_may_be_the_first_second() -> None:
    assert moment_of(0.0) == datetime(1970, 1, 1, tzinfo=UTC)
