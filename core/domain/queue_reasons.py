"""Reasons for which simulations wait, of groups of them, and what stands still meanwhile."""

from collections.abc import Mapping

from core.domain.preparation import PREPARATION_SLOT
from core.domain.states import FINAL, State


def reason_of(
    state: State,
    executor: str | None,
    *,
    awaits_model: bool,
    paused: bool,
    unprepared: bool,
    outages: Mapping[str, str | None],
) -> str:
    """Return what a group of simulations waits for.

    ``paused``: their last attempt failed, and the next is later. ``unprepared``: no job that could prepare them is
    free. ``outages``: the last error of each executor that is not healthy.
    """
    if state is State.LAUNCHING:
        return "its processes are being started"
    if state is State.STAGING:
        return "its model and dataset are being brought near"
    if awaits_model:
        return "its model is being imported"
    if paused:
        return "its last attempt failed; it is tried again"
    if unprepared:
        return PREPARATION_SLOT
    if executor is not None and executor in outages:
        return f"waits for {executor}: {outages[executor] or 'it does not answer'}"
    return f"waits for free workers of {executor}" if executor else "waits for free workers"


def with_standstill(state: State, reason: str | None, standstill: str) -> str | None:
    """Return the reason of a simulation in a platform of which something does not work."""
    if state in FINAL:
        return reason
    return f"it may not progress: {standstill}" + (f"; {reason}" if reason else "")
