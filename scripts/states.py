"""Page of the states: docs/states.md, from the table of transitions; `make reference` writes it."""

from core.domain.scheduling.states import NEXT, State

HEAD = """# States of a simulation

Generated from `core/domain/scheduling/states.py` by `make reference`.

`queued` → `staging` → `launching` → `running` → `succeeded` is the way of a simulation without failures.

| state | meaning | may be followed by |
|---|---|---|
"""
TAIL = """
A retry by the platform is the transition back to `queued`; it increments `attempt`. A simulation that has been
prepared is queued in its place, as the same attempt. A user's retry is a new simulation.
"""
S = State
MEANINGS = {
    S.QUEUED: "accepted, waiting for the import of its model or for free workers; see `position` and `reason`",
    S.STAGING: "its environments, model and files are being prepared; it holds no worker, and is queued afterwards",
    S.LAUNCHING: "handed to an executor; no task is leased yet",
    S.RUNNING: "the first task was leased",
    S.CANCELLING: "cancelled by its owner; runners may not have ended yet",
    S.SUCCEEDED: "every task has a result; at least one is `ok`, and at most `max_failures` are not",
    S.FAILED: "caused by the model or the simulator: cannot be imported, does not load or fit, is too slow, or fails",
    S.ERRORED: "caused by the platform, which has no retries left",
    S.CANCELLED: "stopped by its owner; its results so far are kept",
}


def page() -> str:
    """Return the page: a row for each state, in the order of a simulation's life."""
    rows = []
    for state in State:
        following = ", ".join(f"`{other}`" for other in State if other in NEXT[state]) or "nothing: it has ended"
        rows.append(f"| `{state}` | {MEANINGS[state]} | {following} |\n")
    return HEAD + "".join(rows) + TAIL
