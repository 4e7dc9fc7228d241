"""Due jobs in SQL: what no job has claimed, by kind. Redis only carries them faster."""

from collections.abc import Callable, Mapping

from core.domain.scheduling.due_jobs import due_job
from core.domain.scheduling.preparation import JOBS, Preparation
from core.domain.scheduling.states import State
from core.store import datasets, model_imports, run_logs, simulations, webhooks
from core.store.comparisons import COMPARISONS
from core.store.database import Connection, Database
from core.store.pipelines import PIPELINES

#: The id of the periodic job `sweep`.
SWEEP = "expired"
#: Maximum of ids that are returned at once.
MOST = 100


class DueJobs:
    """Reads which jobs are due. Replays are not among them: no row asks for one, its client does so again."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, kind: str) -> list[str]:
        """Return the ids of a kind's jobs that are due and unclaimed, at most MOST; `sweep` always is."""
        if kind == "sweep":
            return [SWEEP]
        with self._database.read() as c:
            now = self._database.now(c)
            due = []
            if kind in _OF_SIMULATIONS:
                due = [row.id for row in simulations.unclaimed(c, now) if _kind_of(row) == kind]
            return [*due, *(_READ[kind](c, now) if kind in _READ else ())][:MOST]

    def beside_admitted(self) -> Mapping[str, list[str]]:
        """Return the due jobs that are not for simulations between admission and end, by kind."""
        with self._database.read() as c:
            now = self._database.now(c)
            return {kind: read(c, now) for kind, read in _READ.items()}


#: Kinds of which the states of simulations say whether they are due.
_OF_SIMULATIONS = frozenset({"collect", *(job.value for job in JOBS)})
_READ: Mapping[str, Callable[[Connection, float], list[str]]] = {
    "register": datasets.CLAIMS.due,
    "prefetch": datasets.PREFETCHES.due,
    "import": model_imports.CLAIMS.due,
    "log": run_logs.CLAIMS.due,
    "compare": COMPARISONS.claims.due,
    "pipeline": PIPELINES.claims.due,
    "collect": lambda c, now: simulations.unsummed(c),
    "delete": simulations.DELETED.due,
    "deliver": webhooks.CLAIMS.due,
}


def _kind_of(row: simulations.UnclaimedSimulation) -> str | None:
    outcome = State(row.outcome) if row.outcome else None
    preparation = Preparation(row.preparation) if row.preparation else None
    return due_job(State(row.state), outcome, preparation, launched=row.launched, finished=row.finished)
