"""Bulk changes: cancellation and retry of many simulations, each with its own outcome. Repeating one changes nothing.

No outcome depends on another, but for a store that does not answer: then the simulations that follow are not tried.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from common.errors import IllegalTransition, PlatformError, StoreUnavailable
from core.domain.access.scopes import Caller
from core.domain.scheduling.states import FINAL, UNENDED, State
from core.domain.submissions.listing import Listing
from core.domain.submissions.records import Simulation
from core.services.simulations.retries import Skipped
from core.services.simulations.simulations import Simulations
from core.store import listing as listing_store
from core.store import simulations as store
from core.store.database import Database

#: States that a listing has for a bulk change if it names none.
CANCELLED_BY_DEFAULT = tuple(state for state in State if state in UNENDED - {State.CANCELLING})
RETRIED_BY_DEFAULT = (State.FAILED, State.ERRORED, State.CANCELLED)


class Status(StrEnum):
    """What a bulk change has done with a simulation."""

    DONE = "done"
    SKIPPED = "skipped"  # there was nothing to do
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Outcome of one simulation. ``result``: the id of the simulation that it concerns; of a retry, the new one's."""

    id: str
    status: Status
    reason: str | None = None
    result: str | None = None
    error: PlatformError | None = None


class Bulk:
    """Service of bulk changes."""

    def __init__(self, database: Database, simulations: Simulations) -> None:
        self._database = database
        self._simulations = simulations

    def select(
        self, caller: Caller, listing: Listing, *, after: str | None, limit: int
    ) -> tuple[list[str], str | None]:
        """Return the ids of up to ``limit`` simulations of a listing, newest first, and the cursor of the next."""
        with self._database.read() as c:
            ids = listing_store.page_ids(c, caller.scope, listing, after=after, limit=limit + 1)
        return ids[:limit], ids[limit - 1] if len(ids) > limit else None

    def cancel(self, caller: Caller, ids: Sequence[str]) -> list[Outcome]:
        """Cancel simulations, in one transaction; those that have ended, or whose end is decided, are skipped."""
        ids = list(dict.fromkeys(ids))
        try:
            with self._database.read() as c:
                rows = store.found(c, caller.scope, ids)
            reasons = {id: _why_not_cancelled(State(row.state), row.outcome) for id, row in rows.items()}
            errors = self._simulations.cancellations.begin(caller, [id for id in ids if reasons.get(id) is None])
        except StoreUnavailable as outage:
            return [Outcome(id=id, status=Status.FAILED, error=outage) for id in ids]
        return [_cancelled(id, reasons.get(id), errors.get(id)) for id in ids]

    def retry(self, caller: Caller, ids: Sequence[str], *, only_failed: bool = True) -> list[Outcome]:
        """Retry simulations that have ended; those that have a retry already, or nothing to repeat, are skipped."""
        ids = list(dict.fromkeys(ids))
        try:
            outcomes = self._simulations.retries.begin(caller, ids, only_failed=only_failed)
        except StoreUnavailable as outage:
            return [Outcome(id=id, status=Status.FAILED, error=outage) for id in ids]
        return [_retried(id, outcomes[id]) for id in ids]

    def simulations(self, caller: Caller, outcomes: Sequence[Outcome]) -> dict[str, Simulation]:
        """Return the simulations that outcomes concern, by id, without those that have been deleted meanwhile."""
        return self._simulations.several(caller, [outcome.result for outcome in outcomes if outcome.result])


def _retried(id: str, outcome: str | Skipped | PlatformError) -> Outcome:
    if isinstance(outcome, PlatformError):
        return Outcome(id=id, status=Status.FAILED, error=outcome)
    if isinstance(outcome, Skipped):
        return Outcome(id=id, status=Status.SKIPPED, reason=outcome.reason, result=outcome.result)
    return Outcome(id=id, status=Status.DONE, result=outcome)


def _cancelled(id: str, reason: str | None, error: PlatformError | None) -> Outcome:
    if isinstance(error, IllegalTransition):  # it has just ended
        reason = error.detail
    elif error is not None:
        return Outcome(id=id, status=Status.FAILED, error=error)
    return Outcome(id=id, status=Status.DONE if reason is None else Status.SKIPPED, reason=reason, result=id)


def _why_not_cancelled(state: State, outcome: str | None) -> str | None:
    """Return why there is nothing to cancel; None if there is."""
    if state in FINAL:
        return f"it has {state} already" if state is not State.CANCELLED else "it is cancelled already"
    if state is State.CANCELLING:
        return "it is being cancelled already"
    return f"its end is decided: {outcome}" if outcome is not None else None
