"""Reasons for which simulations wait."""

import pytest

from core.domain.queue_reasons import reason_of
from core.domain.states import State


@pytest.mark.parametrize(
    ("state", "executor", "awaits_model", "paused", "expected"),
    [
        (State.QUEUED, None, False, False, "waits for free workers"),
        (State.QUEUED, "hpc", False, False, "waits for free workers of hpc"),
        (State.QUEUED, "down", False, False, "waits for down: no route"),
        (State.QUEUED, "silent", False, False, "waits for silent: it does not answer"),
        (State.QUEUED, "down", True, False, "its model is being imported"),
        (State.QUEUED, None, False, True, "its last attempt failed; it is tried again"),
        (State.STAGING, "hpc", False, False, "its model and dataset are being brought near"),
        (State.LAUNCHING, "hpc", False, False, "its processes are being started"),
    ],
)
def test_a_group_waits_for(state: State, executor: str | None, awaits_model: bool, paused: bool, expected: str) -> None:
    outages = {"down": "no route", "silent": None}
    reason = reason_of(state, executor, awaits_model=awaits_model, paused=paused, unprepared=False, outages=outages)
    assert reason == expected


def test_a_group_that_no_job_prepares_yet_says_so() -> None:
    reason = reason_of(State.QUEUED, "down", awaits_model=False, paused=False, unprepared=True, outages={"down": "x"})
    assert reason == "waits for a preparation slot"
