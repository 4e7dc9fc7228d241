"""Simulations: submit, get, list, cancel, resize, retry, delete. A submission is resolved to digests once."""

import builtins
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from common.errors import (
    Conflict,
    Gone,
    IllegalTransition,
    InUse,
    NotFinished,
    UnknownSimulation,
    UnreadableRow,
    Unsupported,
)
from common.moments import moment_of
from core.domain.access.scopes import Caller
from core.domain.scheduling.admission import why_waiting
from core.domain.scheduling.permissions import permitting
from core.domain.scheduling.preparation import Preparation, PreparationStep, doing, staging
from core.domain.scheduling.queue_reasons import waiting_for, with_standstill
from core.domain.scheduling.states import FINAL, State
from core.domain.submissions.listing import Listing
from core.domain.submissions.provenance import provenance_of, provenance_of_columns
from core.domain.submissions.records import DatasetRef, Model, ModelRef, RuntimeRef, Simulation, Tasks
from core.domain.submissions.stored_documents import decode_document, load_document
from core.domain.submissions.submission import Submission
from core.domain.submissions.submission_spec import SubmissionSpec, spec_of
from core.notifications.change_notifier import Waiters
from core.notifications.notifier import Notifier
from core.services.simulations import dry_runs
from core.services.simulations.answers import answer_at_end
from core.services.simulations.cancellations import Cancellations
from core.services.simulations.headlines import ProgressSoFar, headline_of, progress_of
from core.services.simulations.new_simulations import NewSimulation, NewSimulations
from core.services.simulations.quota_holds import quota_holds
from core.services.simulations.results import Results
from core.services.simulations.retries import ATTEMPTS, Retries
from core.services.standstill import Standstill
from core.services.submissions.model_imports import ModelImports
from core.services.submissions.resolving import Resolver
from core.store import comparisons, events, executors, idempotency_keys, retention
from core.store import listing as listing_store
from core.store import simulations as store
from core.store.bin import BinAct
from core.store.database import Connection, Database

#: Writes more in the transaction of a submission, for its simulation.
Within = Callable[[Connection, str], None]

_EVERY = Listing()


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulationOptions:
    """Options of the service. ``most_dry_runs``: most unfinished dry runs of a project."""

    standstill: Standstill
    most_dry_runs: int = dry_runs.DRY_RUNS


class Simulations:
    """Service of the simulations API."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        changes: Waiters,
        resolver: Resolver,
        results: Results,
        imports: ModelImports,
        options: "SimulationOptions",
    ) -> None:
        self.cancellations = Cancellations(database, notifier, results)
        self._new_simulations = NewSimulations(notifier, resolver, imports, most_dry_runs=options.most_dry_runs)
        self.retries = Retries(database, results, self._new_simulations)
        self._database = database
        self._resolver = resolver
        self._notifier = notifier
        self._changes = changes
        self._standstill = options.standstill

    # -- submit

    def submit(
        self,
        caller: Caller,
        submission: Submission,
        *,
        model: Model | None = None,
        key: str | None = None,
        request_digest: str | None = None,
        within: Within | None = None,
        retry_of: str | None = None,
    ) -> tuple[Simulation, bool]:
        """Accept a submission, and return its simulation as ``accept`` does."""
        id, replayed = self.accept(
            caller,
            submission,
            model=model,
            key=key,
            request_digest=request_digest,
            within=within,
            retry_of=retry_of,
        )
        return self.get(caller, id), replayed

    def accept(
        self,
        caller: Caller,
        submission: Submission,
        *,
        model: Model | None = None,
        key: str | None = None,
        request_digest: str | None = None,
        within: Within | None = None,
        retry_of: str | None = None,
    ) -> tuple[str, bool]:
        """Resolve a submission to digests, store it as QUEUED, and wake the dispatcher.

        Return the simulation's id, and whether it is that of an earlier request with the same idempotency ``key``.
        ``within``: see `Within`.
        Raise Invalid (or a subclass) for a submission that can never run, IdempotencyMismatch if the key was used
        with another request.
        """
        if key is not None and (replayed := self._replayed(caller, key, request_digest or "")) is not None:
            return replayed, True
        new = self._new_simulations.resolve(caller, submission, model, retry_of=retry_of)
        return self._stored(caller, new, key, request_digest or "", within)

    def _stored(
        self, caller: Caller, new: NewSimulation, key: str | None, request_digest: str, within: Within | None = None
    ) -> tuple[str, bool]:
        """Store a new simulation and wake the dispatcher; return as ``accept`` does."""

        def write(c: Connection) -> str | None:
            now = self._database.now(c)
            if key is not None:
                if (previous := idempotency_keys.remember(c, caller, key, request_digest, new.id, now)) is not None:
                    return previous
            self._new_simulations.keep(c, caller.scope, [new])
            self._new_simulations.insert(c, new, now)
            if within is not None:
                within(c, new.id)
            return None

        first = self._database.write(write)
        if first is not None:
            return first, True
        self._new_simulations.announce([new])
        return new.id, False

    def of_key(self, caller: Caller, id: str) -> Simulation:
        """Return the simulation that the first request with an Idempotency-Key has created; raise Gone."""
        try:
            return self.get(caller, id)
        except UnknownSimulation:
            raise Gone(
                "The simulation of this Idempotency-Key has been deleted. Use a new key for a new request."
            ) from None

    def _replayed(self, caller: Caller, key: str, digest: str) -> str | None:
        with self._database.read() as c:
            return idempotency_keys.find(c, caller, key, digest, self._database.now(c))

    # -- queries

    def get(self, caller: Caller, id: str) -> Simulation:
        """Return a simulation with its progress."""
        with self._database.read() as c:
            [simulation] = self._simulations(c, [store.find(c, caller.reading, id)])
            return simulation

    def several(self, caller: Caller, ids: Sequence[str]) -> dict[str, Simulation]:
        """Return those of these simulations that exist, by id."""
        with self._database.read() as c:
            return {each.id: each for each in self._simulations(c, listing_store.rows_of(c, caller.scope, ids))}

    def list(
        self, caller: Caller, listing: Listing = _EVERY, *, after: str | None = None, limit: int = 50
    ) -> tuple[list[Simulation], str | None]:
        """Return a page of a listing, newest first, and the cursor of the next."""
        with self._database.read() as c:
            rows = listing_store.page(c, caller.scope, listing, after=after, limit=limit + 1)
            page = self._simulations(c, rows[:limit])
        return page, page[-1].id if len(rows) > limit else None

    def count(self, caller: Caller, listing: Listing = _EVERY) -> dict[State, int]:
        """Return the number of simulations of a listing in each state, whatever its states."""
        with self._database.read() as c:
            return listing_store.counts(c, caller.scope, listing)

    def wait(self, caller: Caller, id: str, timeout: float) -> Simulation:
        """Block until the simulation has ended, at most ``timeout`` seconds; return it."""
        deadline = time.monotonic() + timeout
        with self._changes.watching(id):
            while True:
                version = self._changes.version(id)
                simulation = self.get(caller, id)
                remaining = deadline - time.monotonic()
                if simulation.final or remaining <= 0:
                    return simulation
                self._changes.wait(id, version, min(remaining, 1.0))

    def summary(self, caller: Caller, id: str) -> dict[str, object]:
        """Return the summary. Raise NotFinished until the simulation has ended."""
        with self._database.read() as c:
            row = store.find(c, caller.reading, id)
        if row.summary is None:
            raise NotFinished()
        return load_document(row.summary)

    def _simulations(self, c: Connection, rows: Sequence[store.SimulationRow]) -> builtins.list[Simulation]:
        """Return the simulations of rows, with a number of queries that does not grow with the rows."""
        counts = store.counts_of(c, [row.id for row in rows if not (row.headline or row.summary)])
        waiting = {row.id: row.project for row in rows if row.state == State.QUEUED and not row.awaits_model}
        positions = store.positions(c, waiting)
        closed = executors.closed(c) if positions else {}
        held = quota_holds(c, rows, self._resolver.eligibility) if positions else {}
        now = self._database.now(c)
        steps = events.preparation_steps(c, [row.id for row in rows if row.state in (State.STAGING, State.LAUNCHING)])
        doings: dict[str, str | None] = {}
        for row in rows:
            type, step = steps.get(row.id, ("", PreparationStep()))
            if row.state == State.STAGING:
                doings[row.id] = staging(doing(step), claimed=bool(row.claim) and row.claim_until > now)
            elif type == "launch":  # what was staged is over
                doings[row.id] = doing(step)
        doings |= held
        page = []
        for row in rows:
            position, doing_now = positions.get(row.id), doings.get(row.id)
            try:
                page.append(self._simulation(row, counts.get(row.id), position, closed, now, doing_now))
            except UnreadableRow as error:
                total = store.counts_of(c, [row.id]).get(row.id)
                shown = self._simulation(_of_columns(row), total, position, closed, now, doing_now)
                page.append(replace(shown, reason=error.detail))
        if any(each.state not in FINAL for each in page) and (standstill := self._standstill.problem(c)) is not None:
            page = [replace(each, reason=with_standstill(each.state, each.reason, standstill)) for each in page]
        return page

    def _simulation(
        self,
        row: store.SimulationRow,
        counts: tuple[int, int, int] | None,
        position: int | None,
        closed: Mapping[str, str],
        now: float,
        doing: str | None,
    ) -> Simulation:
        """Return the simulation of a row. ``closed``: why executors are given none, by name.

        ``doing``: what happens to it before it runs; of one that is queued, which quota holds it.
        """
        state = State(row.state)
        provenance = provenance_of(row.provenance)
        summary = headline_of(row)
        progress = progress_of(row) if summary is None else ProgressSoFar()
        if summary is not None:
            tasks = Tasks(**summary.tasks)
        else:
            total, done, failed = counts or (0, 0, 0)
            tasks = Tasks(total=total, done=done, failed=failed)
        spec = spec_of(row.spec)
        configs = self._resolver.eligibility.executor_configs
        config = configs.get(row.executor or "") or configs.get(spec.executor)
        requested = spec.requested_workers()
        workers = (
            config.workers_for(requested) if config else max(other.workers_for(requested) for other in configs.values())
        )
        reason = row.reason or doing
        if position is not None and (waits := self._waiting_for(closed, spec)) is not None:
            reason = waits
        elif position is not None:
            preparation = Preparation(row.preparation) if row.preparation else None
            reason = doing or why_waiting(position, workers, row.not_before - now, row.reason, preparation)
        dataset, model = provenance.dataset, provenance.model
        return Simulation(
            id=row.id,
            state=state,
            attempt=row.attempt,
            model=ModelRef(name=model.name, digest=model.digest, version=model.version, format=model.format),
            runtime=RuntimeRef(name=row.runtime or None),
            dataset=DatasetRef(name=dataset.name, version=dataset.version, digest=dataset.digest),
            tasks=tasks,
            metrics=summary.metrics if summary is not None else progress.metrics,
            approximate=summary is None,
            answer=progress.answer if summary is None else answer_at_end(provenance, tasks, summary, row),
            score=summary.score_series if summary is not None else progress.score,
            results_digest=summary.results_digest if summary is not None else None,
            reason=reason,
            position=position,
            next_attempt_at=moment_of(row.not_before) if position is not None and row.not_before > now else None,
            eta=progress.eta if state is State.RUNNING else None,
            running=progress.running if state is State.RUNNING else None,
            created_at=moment_of(row.created_at),
            started_at=moment_of(row.started_at) if row.started_at else None,
            ended_at=moment_of(row.ended_at) if row.ended_at else None,
            labels=decode_document(row.labels, dict[str, str]),
            spec=load_document(row.spec),
            provenance=provenance,
            provenance_document=load_document(row.provenance),
            workers=workers,
            executor=row.executor,
            retry_of=row.retry_of,
            submitted_by=row.submitted_by or None,
            dry_run=bool(row.dry_run),
            trusted=provenance.play.trusted,
            outputs=load_document(row.outputs) if row.outputs else {},
        )

    def _waiting_for(self, closed: Mapping[str, str], spec: SubmissionSpec) -> str | None:
        """Return which executors a queued simulation waits for, if all that could run it are given none."""
        if not closed:
            return None
        placement, gang = spec.placement or {}, spec.gang
        candidates = self._resolver.eligibility.candidates(placement, gang)
        return waiting_for([config.name for config in permitting(candidates, placement, gang) or candidates], closed)

    # -- changes

    def cancel(self, caller: Caller, id: str) -> Simulation:
        """Cancel a simulation: at once if it is queued without a result. Idempotent.

        A simulation whose end has been decided keeps it.
        """
        if (error := self.cancellations.begin(caller, [id]).get(id)) is not None:
            raise error
        return self.get(caller, id)

    def resize(self, caller: Caller, id: str, workers: int) -> Simulation:
        """Change the number of workers, before or while the simulation runs."""

        def write(c: Connection) -> None:
            row = store.find(c, caller.scope, id)
            caller.require_change(row.submitted_by)
            if State(row.state) in FINAL:
                raise IllegalTransition(
                    f"The simulation is {row.state} already; its number of workers can no longer be changed."
                )
            if spec_of(row.spec).gang:
                raise Unsupported("A gang keeps its size. Cancel it and submit it again.")
            store.respecify(c, caller.scope, id, load_document(row.spec) | {"workers": workers})
            events.say(c, id, "workers", {"workers": workers}, self._database.now(c))

        self._database.write(write)
        self._notifier.wake("dispatch")
        self._notifier.publish(id)
        return self.get(caller, id)

    def retry(
        self, caller: Caller, id: str, only_failed: bool = True, *, key: str | None = None
    ) -> tuple[Simulation, bool]:
        """Submit a new simulation for the tasks that failed, or for all; return it as ``accept`` does.

        Successful results are inherited by reference, so the new simulation has a result for every task.
        """
        digest = f"retry:{id}:{only_failed}"
        if (
            key is not None and (replayed := self._replayed(caller, key, digest)) is not None
        ):  # also if ``id`` is deleted
            return self.of_key(caller, replayed), True
        for attempt in range(1, ATTEMPTS + 1):
            retry = self.retries.prepare(caller, id, only_failed)
            try:
                new, repeated = self._stored(caller, retry.new, key, digest, retry.apply)
            except Conflict:  # its results were being compacted at this moment
                if attempt == ATTEMPTS:
                    raise
            else:
                return self.get(caller, new), repeated
        raise AssertionError("unreachable")

    def delete(self, caller: Caller, id: str) -> None:
        """Mark a simulation that has ended as deleted, and remove its objects later, or put it into the bin."""

        def mark_deleted(c: Connection) -> bool:
            row = store.find(c, caller.scope, id)
            caller.require_change(row.submitted_by)
            if State(row.state) not in FINAL:
                raise NotFinished("Cancel the simulation before you delete it.")
            if (comparison := comparisons.comparison_of(c, id)) is not None:
                raise InUse(
                    f"Comparison {comparison} consists of this simulation; delete the comparison, which deletes both.",
                    comparison=comparison,
                )
            if binned := retention.find(c, caller.scope).bin:
                store.into_bin(c, caller.scope, id, BinAct(self._database.now(c), caller.name))
            else:
                store.delete(c, caller.scope, id, self._database.now(c))
            return binned

        binned = self._database.write(mark_deleted)
        self._notifier.publish(id)
        if not binned:
            self._notifier.enqueue("delete", id)


def _of_columns(row: store.SimulationRow) -> store.SimulationRow:
    """Return a row without its documents, of which one cannot be read: with what the other columns tell."""
    provenance = provenance_of_columns(row.dataset, row.runtime, row.model, row.digest)
    documents = {"spec": "{}", "provenance": json.dumps(provenance.document()), "labels": "{}"}
    return msgspec.structs.replace(row, **documents, summary=None, headline=None, progress=None, outputs=None)
