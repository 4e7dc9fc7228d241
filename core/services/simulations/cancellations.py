"""Cancellations: of one simulation or of many, a page in one transaction."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from common.errors import IllegalTransition, NotPermitted, PlatformError, UnknownSimulation, UnreadableRow
from core.domain.access.scopes import Caller
from core.domain.scheduling.states import CANCELLABLE, State
from core.notifications.notifier import Notifier
from core.services.simulations.page_commits import commit_page
from core.services.simulations.results import Results
from core.services.simulations.summaries import SimulationSummary, summarize
from core.store import leases
from core.store import simulations as store
from core.store.database import Connection, Database

REASON = "cancelled by its owner"


class Cancellations:
    """Cancels simulations: at once if they are queued without a result, else they are `cancelling` for a while."""

    def __init__(self, database: Database, notifier: Notifier, results: Results) -> None:
        self._database = database
        self._notifier = notifier
        self._results = results

    def begin(self, caller: Caller, ids: Sequence[str]) -> dict[str, PlatformError]:
        """Cancel simulations; return the errors of those that cannot be, by id. Idempotent.

        A simulation whose end has been decided keeps it. Raise StoreUnavailable if their rows cannot be read.
        """
        with self._database.read() as c:
            rows = store.found(c, caller.scope, ids)
            counts = store.counts_of(c, list(rows))
        summaries: dict[str, SimulationSummary] = {}
        for id, row in rows.items():
            total, done, _ = counts.get(id, (0, 0, 0))
            if State(row.state) is State.QUEUED and done == 0:
                with suppress(UnreadableRow):  # then the job `collect` ends it
                    # Without extras no object is read, so that a store that is away keeps none from ending.
                    summaries[id] = summarize(caller, self._results, row, (), total, extras=())

        def write(c: Connection, page: Sequence[str]) -> Mapping[str, PlatformError | None]:
            now = self._database.now(c)
            return {id: _move(c, caller, rows[id], summaries.get(id), now) for id in page}

        errors: dict[str, PlatformError] = {id: store.unknown(id) for id in ids if id not in rows}
        if rows:
            moved = commit_page(self._database, list(rows), write)
            errors |= {id: error for id, error in moved.items() if error is not None}
            self._notifier.wake("dispatch")
            for id in rows:
                self._notifier.publish(id)
        return errors


def _move(
    c: Connection, caller: Caller, before: store.SimulationRow, summary: SimulationSummary | None, now: float
) -> PlatformError | None:
    """Move a simulation if it can be cancelled; return the error if not. ``before``: its row when it was looked at."""
    try:
        row = store.find(c, caller.scope, before.id)
        caller.require_change(row.submitted_by)
    except (UnknownSimulation, NotPermitted) as error:
        return error
    state = State(row.state)
    if state in {State.CANCELLING, State.CANCELLED} or row.outcome is not None:
        return None
    if state not in CANCELLABLE:
        return IllegalTransition(f"The simulation has {state} already; there is nothing to cancel.", state=str(state))
    leases.close_early(c, row.id)
    unchanged = (row.attempt, row.spec) == (before.attempt, before.spec)
    if state is State.QUEUED and summary is not None and unchanged:
        store.move(c, row.id, state, State.CANCELLED, now, reason=REASON, **summary.columns())
    else:
        store.move(c, row.id, state, State.CANCELLING, now, reason=REASON)
    return None
