"""Only time that a model server could use is held against its model, and every wait ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.harness.model_server.deadlines import (
    Missed,
    ServerTimes,
    Usage,
    Wait,
    decide,
    longest,
    usable,
    usage,
)

SECONDS = st.floats(0.0, 1000.0)
DEADLINES = st.floats(0.01, 1000.0)
USED = st.builds(
    Usage, cpu=SECONDS, queued=SECONDS, throttled=SECONDS, stalled=SECONDS, blocked=SECONDS, stolen=SECONDS
)
THREADS = st.dictionaries(st.sampled_from("abc"), st.tuples(SECONDS, SECONDS))


@given(SECONDS, SECONDS, USED)
def test_a_model_server_can_use_no_more_than_the_time_that_passed(wall: float, observed: float, used: Usage) -> None:
    assert 0.0 <= usable(wall, min(wall, observed), used) <= wall * (1 + 1e-9)


@given(DEADLINES)
def test_a_model_that_sleeps_on_an_idle_machine_misses_its_deadline_at_once(seconds: float) -> None:
    assert usable(seconds, seconds, Usage()) == seconds
    assert decide(seconds, seconds, seconds) == Missed()


@given(DEADLINES, st.floats(0.0, 1.0))
def test_time_in_a_run_queue_does_not_count(wall: float, share: float) -> None:
    used = Usage(cpu=share * wall, queued=(1 - share) * wall)
    assert usable(wall, wall, used) == pytest.approx(share * wall)


@given(DEADLINES, st.floats(0.0, 1.0))
def test_time_in_which_a_cpu_limit_stopped_the_model_server_does_not_count(wall: float, share: float) -> None:
    assert usable(wall, wall, Usage(throttled=share * wall)) == pytest.approx((1 - share) * wall, abs=1e-9)


@given(DEADLINES, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_time_in_which_a_model_server_waited_for_a_disk_does_not_count(wall: float, share: float, part: float) -> None:
    used = Usage(blocked=share * wall, stalled=part * share * wall)
    assert usable(wall, wall, used) == pytest.approx((1 - share) * wall, abs=1e-9)


@given(DEADLINES, st.floats(0.0, 1.0))
def test_time_in_which_the_hypervisor_ran_another_machine_does_not_count(wall: float, share: float) -> None:
    assert usable(wall, wall, Usage(stolen=share * wall)) == pytest.approx((1 - share) * wall, abs=1e-9)


@given(DEADLINES, st.floats(0.0, 1.0))
def test_time_on_a_processor_counts_also_while_another_thread_waits_for_a_disk(wall: float, share: float) -> None:
    assert usable(wall, wall, Usage(cpu=share * wall, blocked=wall)) == pytest.approx(share * wall)


@given(DEADLINES, st.integers(2, 64))
def test_threads_that_wait_for_each_other_on_one_core_do_not_lack_the_machine(wall: float, threads: int) -> None:
    assert usable(wall, wall, Usage(cpu=wall, queued=(threads - 1) * wall)) == pytest.approx(wall)


@given(DEADLINES, SECONDS, SECONDS)
def test_a_decision_is_a_missed_deadline_or_a_wait_that_ends(seconds: float, wall: float, had: float) -> None:
    decision = decide(seconds, wall, min(wall, had))
    match decision:
        case Missed(starved=False):
            assert min(wall, had) >= seconds
        case Missed(starved=True):
            assert wall >= longest(seconds)
        case Wait(further):
            assert 0.0 < further <= seconds
            assert wall + further <= longest(seconds) + 1e-6


@given(DEADLINES, st.floats(0.0, 1.0))
def test_a_starved_model_server_is_not_waited_for_without_end(seconds: float, share: float) -> None:
    wall = seconds
    looks = 0
    while isinstance(decision := decide(seconds, wall, wall * share), Wait):
        wall += decision.seconds
        looks += 1
    assert wall <= longest(seconds) + 1e-6
    assert looks <= 50 * 10 * (1 + 6000 / seconds)


@given(THREADS, THREADS)
def test_a_thread_that_began_or_ended_never_makes_a_usage_negative(
    before: dict[str, tuple[float, float]], after: dict[str, tuple[float, float]]
) -> None:
    used = usage(ServerTimes(threads=before), ServerTimes(threads=after))
    assert min(used.cpu, used.queued) >= 0.0
    new = [times for name, times in after.items() if name not in before]
    assert used.cpu >= sum(cpu for cpu, _ in new)
