"""Reasons for which simulations wait."""

from collections.abc import Collection

import pytest

from core.domain.scheduling.queue_reasons import reason_of, why_closed
from core.domain.scheduling.states import State

CLOSED = {"down": why_closed("no route"), "silent": why_closed(None), "old": why_closed(None, drained="maintenance")}


def reason(
    state: State,
    executor: str | None,
    *,
    awaits_model: bool = False,
    paused: bool = False,
    unprepared: bool = False,
    executors: Collection[str] = ("hpc", *CLOSED),
) -> str:
    return reason_of(
        state,
        executor,
        awaits_model=awaits_model,
        paused=paused,
        unprepared=unprepared,
        closed=CLOSED,
        executors=executors,
    )


@pytest.mark.parametrize(
    ("state", "executor", "awaits_model", "paused", "expected"),
    [
        (State.QUEUED, None, False, False, "waits for free workers"),
        (State.QUEUED, "hpc", False, False, "waits for free workers of hpc"),
        (State.QUEUED, "down", False, False, "waits for down: no route"),
        (State.QUEUED, "silent", False, False, "waits for silent: it does not answer"),
        (State.QUEUED, "old", False, False, "waits for old: it is drained (maintenance)"),
        (State.QUEUED, "down", True, False, "its model is being imported"),
        (State.QUEUED, None, False, True, "its last attempt failed; it is tried again"),
        (State.STAGING, "hpc", False, False, "its model and dataset are being brought near"),
        (State.LAUNCHING, "hpc", False, False, "its processes are being started"),
    ],
)
def test_a_group_waits_for(state: State, executor: str | None, awaits_model: bool, paused: bool, expected: str) -> None:
    assert reason(state, executor, awaits_model=awaits_model, paused=paused) == expected


def test_a_group_that_may_run_anywhere_waits_for_all_executors_once_none_takes_it() -> None:
    assert reason(State.QUEUED, None, executors=["down", "old"]) == (
        "waits for down: no route; waits for old: it is drained (maintenance)"
    )


def test_a_group_that_no_job_prepares_yet_says_so() -> None:
    assert reason(State.QUEUED, "down", unprepared=True) == "waits for a preparation slot"
