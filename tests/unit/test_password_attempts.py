"""Password attempts: guessers are slowed down, and nobody is locked out by what others do."""

from hypothesis import given
from hypothesis import strategies as st

from core.domain.access.password_attempts import BURST_ATTEMPTS, FORGET_INTERVAL, MOST_BUCKETS, PasswordAttempts

TIMES = st.lists(st.floats(0, 5), max_size=80)


@given(TIMES)
def test_no_more_are_checked_than_the_burst_and_one_in_an_interval(pauses: list[float]) -> None:
    attempts, now, checked = PasswordAttempts(), 0.0, 0
    for pause in pauses:
        now += pause
        checked += attempts.begin("ada", "", now) == 0
    assert checked <= BURST_ATTEMPTS + now / FORGET_INTERVAL


@given(TIMES)
def test_after_the_seconds_that_are_said_an_attempt_is_checked(pauses: list[float]) -> None:
    attempts, now = PasswordAttempts(), 0.0
    for pause in pauses:
        now += pause
        if wait := attempts.begin("ada", "", now):
            now += wait + 1e-6
            assert attempts.begin("ada", "", now) == 0


@given(TIMES)
def test_what_others_try_holds_up_no_known_browser_and_no_other_user(pauses: list[float]) -> None:
    attempts, now = PasswordAttempts(), 0.0
    for pause in pauses:
        now += pause
        attempts.begin("ada", "", now)
    assert attempts.begin("ada", "known", now) == 0 and attempts.begin("bob", "", now) == 0


def test_the_right_password_forgets_the_wrong_ones() -> None:
    attempts = PasswordAttempts()
    for _ in range(BURST_ATTEMPTS):
        assert attempts.begin("ada", "known", 0.0) == 0
        attempts.succeed("ada", "known")
    assert attempts.begin("ada", "known", 0.0) == 0


def test_memory_is_bounded() -> None:
    attempts = PasswordAttempts()
    for number in range(MOST_BUCKETS + 100):
        attempts.begin(f"user-{number}", "", 0.0)
    assert len(attempts) == MOST_BUCKETS
