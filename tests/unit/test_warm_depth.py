"""Depth of the warm runners: properties of the decision which to start and which to end."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from core.domain.scheduling.warm_depth import DEEPEST, HALF_LIFE, Demand, KindState, WarmLimits, changes, depths, wanted

MB = 1 << 20

demands = st.builds(
    Demand, arrivals=st.floats(0, 1000), at_once=st.floats(0, 64), at=st.floats(0, 1e6, allow_subnormal=False)
)
limits = st.builds(
    WarmLimits,
    kinds=st.integers(0, 4),
    memory=st.integers(0, 4096).map(lambda size: size * MB),
    spare=st.integers(-4096, 4096).map(lambda size: size * MB),
    stalled=st.booleans(),
)


@st.composite
def states(draw: st.DrawFn) -> list[KindState[str]]:
    """Draw kinds, those used last first."""
    return [
        KindState(
            kind=kind,
            demand=draw(demands),
            warm=draw(st.integers(0, DEEPEST)),
            memory=draw(st.integers(1, 512)) * MB,
            start=draw(st.floats(0.01, 5)),
        )
        for kind in draw(st.lists(st.sampled_from("abcdef"), unique=True))
    ]


def after(kinds: list[KindState[str]], limit: WarmLimits) -> list[KindState[str]]:
    """Return the kinds once what was decided has been done."""
    plan = changes(kinds, limit)
    return [
        replace(state, warm=state.warm + plan.start.count(state.kind) - plan.end.count(state.kind)) for state in kinds
    ]


def memory(kinds: list[KindState[str]]) -> int:
    """Return the bytes that the warm runners use."""
    return sum(state.warm * state.memory for state in kinds)


@given(states(), limits)
def test_the_limit_of_memory_is_kept(kinds: list[KindState[str]], limit: WarmLimits) -> None:
    assert memory(after(kinds, limit)) <= max(0, limit.memory)


@given(states(), limits)
def test_what_the_machine_lacks_is_given_back(kinds: list[KindState[str]], limit: WarmLimits) -> None:
    assert memory(after(kinds, limit)) <= max(0, memory(kinds) + limit.spare)


@given(states(), limits)
def test_a_decision_that_was_carried_out_is_not_changed(kinds: list[KindState[str]], limit: WarmLimits) -> None:
    done = after(kinds, limit)
    again = changes(done, replace(limit, spare=limit.spare + memory(kinds) - memory(done)))
    assert not again.end
    assert not again.start or limit.stalled


@given(states(), limits)
def test_a_kind_is_started_or_ended_but_not_both(kinds: list[KindState[str]], limit: WarmLimits) -> None:
    plan = changes(kinds, limit)
    assert not set(plan.start) & set(plan.end)


@given(states(), limits)
def test_nothing_is_started_while_processes_wait_for_memory(kinds: list[KindState[str]], limit: WarmLimits) -> None:
    stalled = replace(limit, stalled=True)
    assert not changes(kinds, stalled).start
    assert all(state.warm <= 1 for state in after(kinds, stalled))


@given(states(), limits)
def test_kinds_that_are_not_kept_have_none(kinds: list[KindState[str]], limit: WarmLimits) -> None:
    assert all(state.warm == 0 for state in after(kinds, limit)[limit.kinds :])


@given(states(), limits)
def test_no_kind_has_a_second_one_before_each_that_fits_has_its_first(
    kinds: list[KindState[str]], limit: WarmLimits
) -> None:
    keep = depths(kinds, limit)
    left = min(limit.memory, memory(kinds) + limit.spare)
    without = [state for state in kinds[: limit.kinds] if keep[state.kind] == 0]
    firsts = sum(state.memory for state in kinds if keep[state.kind])
    assert all(firsts + state.memory > left for state in without)


@given(demands, st.floats(0.01, 5), st.floats(0, 1e4))
def test_less_is_wanted_as_time_passes(demand: Demand, start: float, elapsed: float) -> None:
    assert wanted(demand.as_of(demand.at + elapsed), start) <= wanted(demand, start)


@given(demands, st.floats(0.01, 5), st.integers(1, 64))
def test_a_launch_never_makes_fewer_wanted(demand: Demand, start: float, in_use: int) -> None:
    assert wanted(demand.with_arrival(demand.at, in_use), start) >= wanted(demand, start)


@given(demands, st.floats(0.01, 5))
def test_after_a_rush_one_is_kept(demand: Demand, start: float) -> None:
    assert wanted(demand.as_of(demand.at + 20 * HALF_LIFE), start) == 1


def test_one_launch_after_a_pause_makes_no_rush() -> None:
    assert wanted(Demand().with_arrival(100.0, 1), 1.0) == 1


def test_as_many_are_kept_as_arrive_while_one_starts() -> None:
    demand = Demand()
    for number in range(400):
        demand = demand.with_arrival(number / 40, 2)
    assert 30 < demand.rate < 45, "40 per second arrive"
    assert 6 <= wanted(demand, 0.1) <= 10
    assert wanted(demand, 5.0) == DEEPEST


def test_a_clock_that_was_set_back_changes_nothing() -> None:
    demand = Demand(arrivals=8.0, at_once=3.0, at=100.0)
    assert demand.as_of(50.0) == demand
