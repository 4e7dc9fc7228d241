"""Reasons for which simulations wait, of groups of them, and what stands still meanwhile."""

from collections.abc import Collection, Mapping

from core.domain.scheduling.preparation import PREPARATION_SLOT
from core.domain.scheduling.states import FINAL, State


def reason_of(
    state: State,
    executor: str | None,
    *,
    awaits_model: bool,
    paused: bool,
    unprepared: bool,
    closed: Mapping[str, str],
    executors: Collection[str],
) -> str:
    """Return what a group of simulations waits for.

    ``paused``: their last attempt failed, and the next is later. ``unprepared``: no job that could prepare them is
    free. ``closed``: why executors are given no simulations, by name. ``executors``: the names of all.
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
    if (reason := waiting_for([executor] if executor else executors, closed)) is not None:
        return reason
    return f"waits for free workers of {executor}" if executor else "waits for free workers"


def with_standstill(state: State, reason: str | None, standstill: str) -> str | None:
    """Return the reason of a simulation in a platform of which something does not work."""
    if state in FINAL:
        return reason
    return f"it may not progress: {standstill}" + (f"; {reason}" if reason else "")


def why_closed(error: str | None, *, drained: str | None = None) -> str:
    """Return why an executor is given no simulations: its last ``error``, or that it is ``drained`` and for what."""
    if drained is not None:
        return f"it is drained ({drained})" if drained else "it is drained"
    return error or "it does not answer"


def waiting_for(executors: Collection[str], closed: Mapping[str, str]) -> str | None:
    """Return which executors a simulation waits for, if all that could run it are given none."""
    if not executors or not all(name in closed for name in executors):
        return None
    return "; ".join(f"waits for {name}: {closed[name]}" for name in executors)
