"""The states of a simulation and the arrows between them: the one table, which docs/states.md is drawn from."""

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """Where a simulation stands."""

    QUEUED = "queued"  # accepted, waiting for room
    STAGING = "staging"  # admitted; its environment, model and files are being brought near
    LAUNCHING = "launching"  # handed to an executor, no lease taken yet
    RUNNING = "running"  # the first lease was taken
    CANCELLING = "cancelling"  # the user asked for a stop; runners may still run
    SUCCEEDED = "succeeded"  # every task has a result, and not too many of them failed
    FAILED = "failed"  # the model or the simulator is to blame
    ERRORED = "errored"  # the platform is to blame, and is out of retries
    CANCELLED = "cancelled"


S = State

NEXT: Mapping[State, frozenset[State]] = {
    S.QUEUED: frozenset({S.STAGING, S.CANCELLED, S.ERRORED}),
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
CANCELLABLE = frozenset(state for state, following in NEXT.items() if following & {S.CANCELLING, S.CANCELLED})
#: States in which drivers may lease and report.
LIVE = frozenset({S.LAUNCHING, S.RUNNING})


def may_follow(current: State, following: State) -> bool:
    """Tell whether there is an arrow from one state to the other."""
    return following in NEXT[current]


def mermaid() -> str:
    """Draw the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {S.QUEUED}"]
    lines += [f"    {a} --> {b}" for a in State for b in State if b in NEXT[a]]
    lines += [f"    {state} --> [*]" for state in State if state in FINAL]
    return "\n".join(lines) + "\n"
