"""Retries: new simulations that repeat what did not succeed of others; a page of them is one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.errors import Conflict, NotFinished, PlatformError, StoreUnavailable
from core.domain.access.scopes import Caller
from core.domain.scheduling.states import FINAL, State
from core.domain.submissions.stored_documents import load_document
from core.services.simulations.inheritance import Inheritance
from core.services.simulations.new_simulations import NewSimulation, NewSimulations, resubmission
from core.services.simulations.page_commits import commit_page
from core.services.simulations.results import Results
from core.store import simulations as store
from core.store.database import Connection, Database

#: Inherited segments that one transaction inserts, if it has several retries: other transactions wait for it.
SEGMENTS = 5000
#: Attempts while the results to inherit are moved.
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry that is not stored yet. ``inheritance``: the results that it takes over; None: it repeats all tasks."""

    new: NewSimulation
    inheritance: Inheritance | None

    @property
    def segments(self) -> int:
        """Number of inherited segments."""
        return len(self.inheritance.kept) if self.inheritance is not None else 0

    def apply(self, c: Connection, id: str) -> None:
        """Insert the inherited results of the new simulation; raise Conflict if they have been moved meanwhile."""
        if self.inheritance is not None:
            self.inheritance.apply(c, id, self.new.total)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Why a simulation is not retried. ``result``: the simulation that has what a retry would have."""

    reason: str
    result: str


#: Of each simulation: the id of its retry, or why it has none.
Outcomes = dict[str, str | Skipped | PlatformError]


class Retries:
    """Makes retries. They inherit successful results by reference, so each has a result for every task."""

    def __init__(self, database: Database, results: Results, new_simulations: NewSimulations) -> None:
        self._database = database
        self._results = results
        self._new_simulations = new_simulations

    def prepare(self, caller: Caller, id: str, only_failed: bool) -> Retry:
        """Return the retry of a simulation, of the tasks that failed or of all; raise NotFinished."""
        with self._database.read() as c:
            row = store.find(c, caller.scope, id)
        return self._retry(caller, row, only_failed)

    def _retry(self, caller: Caller, row: store.SimulationRow, only_failed: bool) -> Retry:
        if State(row.state) not in FINAL:
            raise NotFinished("A simulation that has not ended cannot be retried; cancel it first.")
        submission = resubmission({"spec": load_document(row.spec), "provenance": load_document(row.provenance)})
        new = self._new_simulations.resolve(caller, submission, retry_of=row.id)
        return Retry(new, self._results.inheritable(row.id) if only_failed else None)

    def begin(self, caller: Caller, ids: Sequence[str], *, only_failed: bool) -> Outcomes:
        """Retry simulations, but those that have a retry already, or nothing to repeat.

        Once a store does not answer, no other is tried. Raise StoreUnavailable if their rows cannot be read.
        """
        outcomes: Outcomes = {}
        remaining = list(dict.fromkeys(ids))
        for _ in range(ATTEMPTS):
            outcomes |= self._attempt(caller, remaining, only_failed)
            remaining = [id for id in remaining if type(outcomes[id]) is Conflict]  # its results were being compacted
        return outcomes

    def _attempt(self, caller: Caller, ids: Sequence[str], only_failed: bool) -> Outcomes:
        if not ids:
            return {}
        with self._database.read() as c:
            rows, counts = store.found(c, caller.scope, ids), store.counts_of(c, ids)
            retries = store.retries_of(c, caller.scope, ids)
        outcomes: Outcomes = {}
        page: dict[str, Retry] = {}
        outage: StoreUnavailable | None = None
        for id in ids:
            if outage is not None:
                outcomes[id] = outage
                continue
            skipped = _skipped(id, retries.get(id), counts.get(id), only_failed)
            if id not in rows:
                outcomes[id] = store.unknown(id)
            elif skipped is not None and State(rows[id].state) in FINAL:
                outcomes[id] = skipped
            else:
                try:
                    retry = self._retry(caller, rows[id], only_failed)
                except PlatformError as error:
                    outcomes[id] = error
                    outage = error if isinstance(error, StoreUnavailable) else None
                    continue
                if page and sum(other.segments for other in page.values()) + retry.segments > SEGMENTS:
                    written, page = self._write(caller, page), {}
                    outcomes |= written
                    outage = next((each for each in written.values() if isinstance(each, StoreUnavailable)), None)
                page[id] = retry
        return outcomes | self._write(caller, page)

    def _write(self, caller: Caller, page: Mapping[str, Retry]) -> Outcomes:
        def write(c: Connection, ids: Sequence[str]) -> Mapping[str, str | Skipped]:
            now = self._database.now(c)
            self._new_simulations.keep(c, caller.scope, [page[id].new for id in ids])
            for id in ids:  # another request that retries one of them waits, and sees its retry afterwards
                store.hold(c, caller.scope, id)
            return {id: self._insert(c, caller, id, page[id], now) for id in ids}

        outcomes = commit_page(self._database, list(page), write)
        self._new_simulations.announce([retry.new for id, retry in page.items() if outcomes[id] == retry.new.id])
        return outcomes

    def _insert(self, c: Connection, caller: Caller, id: str, retry: Retry, now: float) -> str | Skipped:
        if (other := store.retries_of(c, caller.scope, [id]).get(id)) is not None:
            return _retried(other)
        self._new_simulations.insert(c, retry.new, now)
        retry.apply(c, retry.new.id)
        return retry.new.id


def _skipped(id: str, retry: str | None, counts: tuple[int, int, int] | None, only_failed: bool) -> Skipped | None:
    """Return why a simulation that has ended is not retried; None: it is. ``counts``: of its tasks."""
    if retry is not None:
        return _retried(retry)
    total, done, failed = counts or (0, 0, 0)
    if only_failed and done == total and not failed:
        return Skipped("all its tasks are ok; with `only_failed` false, all are repeated", id)
    return None


def _retried(retry: str) -> Skipped:
    return Skipped(f"it has been retried already, as {retry}; retry that, or this one by itself", retry)
