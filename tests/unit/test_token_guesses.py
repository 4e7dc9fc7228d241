"""Token guesses: a caller that guesses is slowed, whatever the outcome; one that has the right token is not."""

from hypothesis import given
from hypothesis import strategies as st

from server.token_guesses import BURST, INTERVAL, LONGEST, MOST_CALLERS, TokenGuesses

RIGHT = b"the token"


def wrong(guesses: TokenGuesses, number: int, now: float, caller: str = "a") -> float:
    """Send a wrong token that was not sent before, and wait for its answer; return the delay."""
    delay = guesses.delay(caller, b"wrong %d" % number, now, right=False)
    guesses.checked(caller, b"wrong %d" % number, right=False)
    return delay


def test_a_burst_is_answered_at_once_and_then_one_an_interval() -> None:
    guesses, now = TokenGuesses(), 0.0
    for number in range(BURST):
        assert wrong(guesses, number, now) == 0.0
    for number in range(100):
        delay = wrong(guesses, BURST + number, now)
        assert delay == INTERVAL
        now += delay


@given(st.lists(st.floats(0.0, 30.0), min_size=1, max_size=200))
def test_one_guess_after_the_other_gets_a_burst_and_one_an_interval(pauses: list[float]) -> None:
    guesses, now = TokenGuesses(), 0.0
    for number, pause in enumerate(pauses):
        now += pause + wrong(guesses, number, now + pause)
    assert len(pauses) <= BURST + now / INTERVAL + 1e-6


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 3.0)), max_size=300))
def test_nobody_waits_for_longer_than_the_longest_delay(sent: list[tuple[bool, float]]) -> None:
    guesses, now = TokenGuesses(), 0.0
    for number, (right, pause) in enumerate(sent):
        now += pause
        assert 0.0 <= guesses.delay("a", RIGHT if right else b"%d" % number, now, right=right) <= LONGEST


def test_the_right_token_waits_as_a_wrong_one_does_until_it_has_been_checked() -> None:
    guesses = TokenGuesses()
    for number in range(BURST + 4):
        wrong(guesses, number, 0.0)
    assert guesses.delay("a", RIGHT, 0.0, right=True) == guesses.delay("a", RIGHT, 0.0, right=True) == 4 * INTERVAL
    guesses.checked("a", RIGHT, right=True)
    assert guesses.delay("a", RIGHT, 0.0, right=True) == 0.0, "its address is known"
    assert wrong(guesses, 99, 0.0) == 5 * INTERVAL, "which does not let it guess"


def test_other_callers_do_not_wait() -> None:
    guesses = TokenGuesses()
    for number in range(1000):
        wrong(guesses, number, 0.0)
    assert guesses.delay("b", RIGHT, 0.0, right=True) == 0.0 and wrong(guesses, 0, 0.0, "c") == 0.0


def test_a_wrong_token_that_is_sent_again_and_again_is_one_guess() -> None:
    guesses = TokenGuesses()
    assert {wrong(guesses, 1, 0.0) for _ in range(1000)} == {0.0}
    assert guesses.delay("a", RIGHT, 0.0, right=True) == 0.0


def test_the_same_guess_sent_at_once_waits_as_others_do() -> None:
    guesses = TokenGuesses()
    delays = [guesses.delay("a", b"guess", 0.0, right=False) for _ in range(BURST + 3)]
    assert delays == [0.0] * BURST + [INTERVAL, 2 * INTERVAL, 3 * INTERVAL]


def test_a_bounded_number_of_callers_is_remembered_of_each_kind() -> None:
    guesses = TokenGuesses()
    for number in range(MOST_CALLERS + 10):
        wrong(guesses, number, 0.0, f"guesser {number}")
        guesses.checked(f"user {number}", RIGHT, right=True)
    assert (len(guesses._buckets), len(guesses._known)) == (MOST_CALLERS, MOST_CALLERS)
