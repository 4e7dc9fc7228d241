"""States of a simulation and the transitions between them; docs/states.md is generated from this table."""

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """State of a simulation."""

    QUEUED = "queued"  # accepted, waiting for capacity
    STAGING = "staging"  # its environment, model and files are being prepared; it holds no worker
    LAUNCHING = "launching"  # admitted and submitted to an executor, no lease taken yet
    RUNNING = "running"  # the first lease was taken
    CANCELLING = "cancelling"  # the user asked for a stop; runners may still run
    SUCCEEDED = "succeeded"  # every task has a result; one is ok, and not too many failed
    FAILED = "failed"  # because of the model or the simulator
    ERRORED = "errored"  # because of the platform, after all retries
    CANCELLED = "cancelled"


S = State

NEXT: Mapping[State, frozenset[State]] = {
    S.QUEUED: frozenset({S.STAGING, S.LAUNCHING, S.CANCELLING, S.CANCELLED, S.FAILED, S.ERRORED}),
    S.STAGING: frozenset({S.LAUNCHING, S.CANCELLING, S.QUEUED, S.FAILED, S.ERRORED}),
    S.LAUNCHING: frozenset({S.RUNNING, S.CANCELLING, S.QUEUED, S.FAILED, S.ERRORED}),
    S.RUNNING: frozenset({S.SUCCEEDED, S.FAILED, S.ERRORED, S.CANCELLING, S.QUEUED}),
    S.CANCELLING: frozenset({S.CANCELLED, S.SUCCEEDED, S.FAILED, S.ERRORED}),
    S.SUCCEEDED: frozenset(),
    S.FAILED: frozenset(),
    S.ERRORED: frozenset(),
    S.CANCELLED: frozenset(),
}

FINAL = frozenset(state for state, following in NEXT.items() if not following)
UNENDED = frozenset(State) - FINAL
#: States of a simulation that is not queued and has not ended.
ADMITTED = UNENDED - {S.QUEUED}
CANCELLABLE = frozenset(state for state, following in NEXT.items() if following & {S.CANCELLING, S.CANCELLED})
#: States before a simulation runs.
WAITING_STATES = frozenset({S.QUEUED, S.STAGING, S.LAUNCHING})
#: States in which runners may lease and report.
LIVE = frozenset({S.LAUNCHING, S.RUNNING})


def may_follow(current: State, following: State) -> bool:
    """Return whether the transition is allowed."""
    return following in NEXT[current]
