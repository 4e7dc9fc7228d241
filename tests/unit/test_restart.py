"""Restart of processes that end: the pause grows to a limit, however often a process ends."""

from hypothesis import given
from hypothesis import strategies as st

from common.backoff import RetryPolicy
from server.restart import RETRY, STABLE_UPTIME, decide_restart


@given(st.integers(0, 100_000), st.floats(0, STABLE_UPTIME))
def test_the_pause_never_shrinks_while_a_process_ends_early_and_stays_within_its_limits(
    failures: int, uptime: float
) -> None:
    count, pause = decide_restart(failures, uptime=uptime)
    assert count == failures + 1
    assert RETRY.first <= pause <= decide_restart(count, uptime=uptime)[1] <= RETRY.longest


@given(st.integers(0, 100_000))
def test_a_process_that_ran_long_is_started_again_after_the_first_pause(failures: int) -> None:
    assert decide_restart(failures, uptime=STABLE_UPTIME + 1) == (1, RETRY.first)


def test_the_pause_doubles_from_a_tenth_of_a_second_to_fifteen() -> None:
    pauses = [decide_restart(failures, uptime=0.0)[1] for failures in range(10)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0, 15.0]


@given(failures=st.integers(1, 100_000), first=st.floats(0.01, 10), factor=st.floats(1, 1000))
def test_a_pause_doubles_up_to_the_longest(failures: int, first: float, factor: float) -> None:
    retry = RetryPolicy(first=first, longest=first * factor)
    pauses = [retry.pause(number) for number in (failures, failures + 1)]
    assert first <= pauses[0] <= pauses[1] <= min(retry.longest, 2 * pauses[0])
