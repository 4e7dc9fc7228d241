"""Due jobs: which job a simulation needs next, and when a job is tried again that no queue keeps a record of."""

from collections.abc import Sequence

from core.domain.scheduling.job_kinds import RETRY, JobKind
from core.domain.scheduling.preparation import Preparation
from core.domain.scheduling.states import State

#: Seconds after an attempt that succeeded before a job is begun again that is still due: another attempt may have had
#: the claim.
REST = 2.0


def due_job(
    state: State, outcome: State | None, preparation: Preparation | None, *, launched: bool, finished: bool
) -> str | None:
    """Return the kind of job that a simulation needs, None if it needs none now; a claim on it is checked elsewhere.

    ``outcome``: the state in which it ends, once decided. ``preparation``: which job prepares it. ``launched``: it has
    a live launch. ``finished``: every task has a result.
    """
    if state is State.CANCELLING:
        return None if launched else "collect"
    if outcome is not None or (state is State.RUNNING and finished):
        return "collect"
    if state is not State.STAGING:
        return None
    return (Preparation.LONG if preparation is Preparation.LONG else Preparation.QUICK).value


class Attempts:
    """When each due job of a kind may run next, for a worker that finds its jobs in SQL. No I/O; times in seconds."""

    def __init__(self, kind: JobKind) -> None:
        self._kind = kind
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}

    def next(self, due: Sequence[str], now: float) -> str | None:
        """Return the first of the due jobs that need not wait, or None; jobs that are due no longer are forgotten."""
        for id in self._not_before.keys() - set(due):
            del self._not_before[id]
            self._failures.pop(id, None)
        return next((id for id in due if self._not_before.get(id, now) <= now), None)

    def ended(self, id: str, now: float, *, failed: bool) -> None:
        """Record the end of an attempt. A failed job waits as it would in its queue, without end."""
        if not failed:
            self._failures.pop(id, None)
            self._not_before[id] = now + (self._kind.period or REST)
            return
        failures = self._failures[id] = self._failures.get(id, 0) + 1
        retries = self._kind.retries
        wait = retries[failures - 1] if failures <= len(retries) else RETRY.pause(failures - len(retries))
        self._not_before[id] = now + wait
