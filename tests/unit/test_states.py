"""State table of simulations and its invariants."""

import pytest

from core.domain.scheduling.states import CANCELLABLE, FINAL, NEXT, State, may_follow


def reachable(start: State) -> set[State]:
    visited, pending = {start}, [start]
    while pending:
        for state in NEXT[pending.pop()] - visited:
            visited.add(state)
            pending.append(state)
    return visited


def test_every_state_has_a_row() -> None:
    assert set(NEXT) == set(State)


def test_every_state_is_reachable_from_queued() -> None:
    assert reachable(State.QUEUED) == set(State)


@pytest.mark.parametrize("state", State)
def test_from_every_state_a_final_state_is_reachable(state: State) -> None:
    assert reachable(state) & FINAL


def test_final_states_have_no_transitions() -> None:
    assert FINAL == {State.SUCCEEDED, State.FAILED, State.ERRORED, State.CANCELLED}
    assert not any(may_follow(state, other) for state in FINAL for other in State)


def test_every_state_that_is_not_final_can_be_cancelled() -> None:
    assert CANCELLABLE == set(State) - FINAL - {State.CANCELLING} | {State.CANCELLING}
