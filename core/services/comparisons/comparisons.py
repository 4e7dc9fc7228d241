"""Comparisons of models: create, get, list, add a model, cancel, retry, delete. Names are resolved to digests once."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import msgspec

from common.errors import Conflict, IllegalTransition, Invalid, NotFinished, TooManyTasks
from common.ids import new_id
from core.domain.access.scopes import Caller
from core.domain.comparisons.claims import Claim, Method, method_of
from core.domain.comparisons.comparison_requests import ComparisonRequest
from core.domain.comparisons.comparison_spec import ComparisonSpec
from core.domain.comparisons.comparison_states import (
    ENDED,
    FEWEST_MODELS,
    LABEL,
    MOST_MODELS,
    MOST_SCENARIOS,
    ComparisonState,
)
from core.domain.comparisons.margins import checked_margin
from core.domain.comparisons.metric_scale import MetricScale
from core.domain.results.declared_results import declared_results
from core.domain.results.score import judged_metric, metrics_with_direction, others_with_direction
from core.domain.scheduling.states import State
from core.domain.submissions.listing import Listing
from core.domain.submissions.provenance import Provenance, provenance_of
from core.domain.submissions.stored_documents import decode_document
from core.domain.submissions.submission import MEMBERS, Submission
from core.notifications.change_notifier import Waiters
from core.notifications.notifier import Notifier
from core.services.access.submitters import take_over
from core.services.comparisons.comparison_documents import comparison_document
from core.services.datasets.catalogue import pinned, played
from core.services.datasets.datasets import Datasets
from core.services.event_streams import EventLog
from core.services.submissions.resolving import UNKNOWN_MODEL, Resolved, Resolver
from core.services.unreadable_rows import readable
from core.services.uploads.models import Models
from core.store import comparison_listing, idempotency_keys, simulations
from core.store import comparisons as store
from core.store.comparisons import COMPARISONS, BatchSimulationRow, ComparedModelRow, ComparisonRow
from core.store.database import Connection, Database
from runtimes.harness.evaluator.tasks import BY_SCENARIO, TaskPlan

#: Members of a request that are those of a submission.
_SUBMISSION = tuple(member.name for member in MEMBERS if member.facts.compared)


class Comparisons:
    """Service of the comparisons API. The job `compare` plays the batches (comparison_batches.py)."""

    def __init__(self, database: Database, notifier: Notifier, changes: Waiters, resolver: Resolver) -> None:
        self._database = database
        self._notifier = notifier
        self.events = EventLog(database, changes, COMPARISONS.find, ENDED)
        self._resolver = resolver

    # -- create

    def create(
        self,
        caller: Caller,
        request: ComparisonRequest,
        *,
        key: str | None = None,
        request_digest: str = "",
        within: Callable[[Connection, str], None] | None = None,
    ) -> tuple[dict[str, object], bool]:
        """Store a comparison and let its first batch be submitted; return it, and whether ``key`` was used before.

        Raise Invalid (or a subclass) for a comparison that can never run, IdempotencyMismatch if the key was used with
        another request. ``within``: called with the new id in the transaction that stores it.
        """
        if key is not None:
            with self._database.read() as c:
                replayed = idempotency_keys.find(c, caller, key, request_digest, self._database.now(c))
            if replayed is not None:
                return self.get(caller, replayed), True
        _check_models(request)
        first, *others = self._resolve_all(caller, request)
        scenarios, margin, method = _check_question(request, first[1])
        id = new_id(datetime.now(UTC))
        dataset = first[1].provenance.dataset
        spec = ComparisonSpec.of(request, margin=margin, method=method, models=len(others))
        reference = request.models.index(request.reference) if request.reference else len(request.models) - 1
        row = {
            "project": caller.scope.owner,
            "spec": json.dumps(msgspec.to_builtins(spec)),
            "dataset": dataset.name,
            "dataset_version": dataset.version,
            "dataset_digest": dataset.digest,
            "reference": reference,
            "scenarios": scenarios,
            "labels": json.dumps(dict(request.labels)),
            "submitted_by": caller.name,
        }

        def write(c: Connection) -> str | None:
            now = self._database.now(c)
            if key is not None:
                if (previous := idempotency_keys.remember(c, caller, key, request_digest, id, now)) is not None:
                    return previous
            COMPARISONS.add(c, id, row, now)
            for ordinal, (submission, resolved) in enumerate((first, *others)):
                _add_model(c, caller, id, ordinal, submission, resolved, now)
            if within is not None:
                within(c, id)
            return None

        if (previous := self._database.write(write)) is not None:
            return self.get(caller, previous), True
        self._notifier.enqueue("compare", id)
        return self.get(caller, id), False

    def check(self, caller: Caller, request: ComparisonRequest) -> list[Provenance]:
        """Return the provenance of each model of a request. Raise Invalid for one that can never run."""
        _check_models(request)
        resolved = [each for _, each in self._resolve_all(caller, request)]
        _check_question(request, resolved[0])
        return [each.provenance for each in resolved]

    def check_known_models(self, caller: Caller, request: ComparisonRequest) -> None:
        """Raise Invalid for a request that can never run, whatever models join those that it names, perhaps none."""
        submissions = [_submission(request, request.dataset, name) for name in request.models]
        unknown = replace(_submission(request, request.dataset, ""), model=None, model_reference=UNKNOWN_MODEL)
        for submission in submissions or [unknown]:
            _check_question(request, self._resolver.resolve(caller, submission))

    def _resolve_all(self, caller: Caller, request: ComparisonRequest) -> list[tuple[Submission, Resolved]]:
        """Resolve the models of a request, on the same version of the dataset. Raise Invalid for equal ones."""
        resolved: list[tuple[Submission, Resolved]] = []
        dataset = request.dataset
        for name in request.models:
            submission = _submission(request, dataset, name)
            resolved.append((submission, self._resolver.resolve(caller, submission)))
            dataset = pinned(resolved[0][1].provenance.dataset)
        _check_different(request.models, [entry.provenance for _, entry in resolved])
        return resolved

    def add_models(
        self, caller: Caller, id: str, names: Sequence[str], runtimes: Mapping[str, str]
    ) -> dict[str, object]:
        """Let models join a comparison: they are compared with its reference on the same scenarios and seeds.

        What was played before is not played again, and the verdicts that it has stay as they are. Raise Invalid for a
        model that is in it already, and Conflict if its results would not be comparable.
        """
        with self._database.read() as c:
            row = COMPARISONS.find(c, caller.scope, id)
            caller.require_change(row.submitted_by)
            present = store.models_of(c, [id])
        submitted = decode_document(present[0].spec, Submission)
        provenances = [provenance_of(model.provenance) for model in present]
        dataset = pinned(provenances[0].dataset)
        joining: list[tuple[Submission, Resolved]] = []
        for name in names:
            submission = replace(submitted, model=name, runtime=runtimes.get(name), dataset=dataset)
            resolved = self._resolver.resolve(caller, submission)
            _check_comparable(resolved.provenance, provenances[row.reference])
            joining.append((submission, resolved))
        labels = [model.name for model in present] + list(names)
        _check_different(labels, provenances + [resolved.provenance for _, resolved in joining])

        def write(c: Connection) -> None:
            now = self._database.now(c)
            row = COMPARISONS.find(c, caller.scope, id, lock=True)
            caller.require_change(row.submitted_by)
            state = row.state
            if state == ComparisonState.CANCELLING:
                raise IllegalTransition("The comparison is being cancelled; wait for its end.", state=state)
            count = len(store.models_of(c, [id]))
            if count != len(present):
                raise Conflict("Another model has joined the comparison at this moment. Send the request again.")
            if count + len(joining) > MOST_MODELS:
                raise Invalid(f"A comparison has at most {MOST_MODELS} models; this one has {count}.")
            for number, (submission, resolved) in enumerate(joining):
                _add_model(c, caller, id, count + number, submission, resolved, now)
                COMPARISONS.say(c, id, "joined", {"model": resolved.provenance.model.name}, now)
            take_over(c, COMPARISONS, row, caller)
            if state != ComparisonState.RUNNING:
                COMPARISONS.move(c, id, ComparisonState.RUNNING, now, reason=None)

        self._database.write(write)
        return self._announce_change(caller, id)

    # -- queries

    def get(self, caller: Caller, id: str) -> dict[str, object]:
        """Return a comparison with the verdict on each model so far."""
        with self._database.read() as c:
            row = COMPARISONS.find(c, caller.scope, id)
            return comparison_document(row, store.models_of(c, [id]), store.simulations_of(c, [id]), details=True)

    def list(
        self, caller: Caller, listing: Listing, *, states: Sequence[str] = (), after: str | None = None, limit: int = 50
    ) -> tuple[Sequence[dict[str, object]], str | None]:
        """Return a page of comparisons without the details of their verdicts, newest first, and the next cursor.

        ``states``: any of these; those of the listing are of simulations.
        """
        with self._database.read() as c:
            rows = comparison_listing.page(c, caller.scope, listing, states=states, after=after, limit=limit + 1)
            ids = [row.id for row in rows[:limit]]
            models, plays = store.models_of(c, ids), store.simulations_of(c, ids)

        def document(row: ComparisonRow) -> dict[str, object]:
            own = [model for model in models if model.comparison_id == row.id]
            return comparison_document(
                row, own, [play for play in plays if play.comparison_id == row.id], details=False
            )

        return readable(rows[:limit], document, "comparison"), ids[-1] if len(rows) > limit else None

    def count(self, caller: Caller, listing: Listing) -> dict[ComparisonState, int]:
        """Return the number of comparisons of a listing in each state."""
        with self._database.read() as c:
            return comparison_listing.counts(c, caller.scope, listing)

    # -- changes

    def cancel(self, caller: Caller, id: str) -> dict[str, object]:
        """Cancel a comparison and its simulations; the verdicts that hold are kept. Idempotent."""

        def write(c: Connection) -> None:
            row = COMPARISONS.find(c, caller.scope, id, lock=True)
            caller.require_change(row.submitted_by)
            state = row.state
            if state in (ComparisonState.CANCELLING, ComparisonState.CANCELLED):
                return
            if state in ENDED:
                raise IllegalTransition(f"The comparison has {state} already; there is nothing to cancel.", state=state)
            now = self._database.now(c)
            _move_models(c, caller, id, (ComparisonState.RUNNING,), ComparisonState.CANCELLED, now)
            COMPARISONS.move(c, id, ComparisonState.CANCELLING, now, reason="cancelled by its owner")

        self._database.write(write)
        return self._announce_change(caller, id)

    def retry(self, caller: Caller, id: str) -> dict[str, object]:
        """Let the models that failed or were cancelled go on where they stopped. Raise IllegalTransition for none."""

        def write(c: Connection) -> None:
            row = COMPARISONS.find(c, caller.scope, id, lock=True)
            caller.require_change(row.submitted_by)
            if row.state == ComparisonState.CANCELLING:
                raise IllegalTransition("The comparison is being cancelled; wait for its end.", state=row.state)
            now = self._database.now(c)
            stopped = (ComparisonState.FAILED, ComparisonState.CANCELLED)
            if not (moved := _move_models(c, caller, id, stopped, ComparisonState.RUNNING, now)):
                raise IllegalTransition("No model of the comparison has failed or was cancelled.", state=row.state)
            take_over(c, COMPARISONS, row, caller)
            again = {(ordinal, model.batch) for model in moved for ordinal in (model.ordinal, row.reference)}
            for play in store.simulations_of(c, [id]):
                if (play.ordinal, play.batch) in again and not _complete(c, play):
                    store.remove_simulation(c, play.simulation_id)
            if row.state in ENDED:
                COMPARISONS.move(c, id, ComparisonState.RUNNING, now, reason=None)

        self._database.write(write)
        return self._announce_change(caller, id)

    def delete(self, caller: Caller, id: str) -> None:
        """Delete a comparison that has ended, and its simulations."""

        def write(c: Connection) -> Sequence[str]:
            row = COMPARISONS.find(c, caller.scope, id, lock=True)
            caller.require_change(row.submitted_by)
            if row.state not in ENDED:
                raise NotFinished("The comparison has not ended: cancel it, and wait for its end.")
            plays = [play for play in store.simulations_of(c, [id]) if not play.deleted]
            if unended := [play.simulation_id for play in plays if play.runs]:
                raise NotFinished(f"Simulation {unended[0]} of the comparison has not ended; wait for that.")
            now = self._database.now(c)
            for play in plays:
                simulations.delete(c, caller.scope, play.simulation_id, now)
            store.remove(c, id)
            return [play.simulation_id for play in plays]

        for simulation in self._database.write(write):
            self._notifier.publish(simulation)
            self._notifier.enqueue("delete", simulation)
        self._notifier.publish(id)

    def _announce_change(self, caller: Caller, id: str) -> dict[str, object]:
        self._notifier.publish(id)
        self._notifier.enqueue("compare", id)
        return self.get(caller, id)


def _check_models(request: ComparisonRequest) -> None:
    if not FEWEST_MODELS <= len(request.models) <= MOST_MODELS:
        raise Invalid(f"`models` names {FEWEST_MODELS} to {MOST_MODELS} models, not {len(request.models)}.")
    listed = ", ".join(request.models)
    if request.reference is not None and request.reference not in request.models:
        raise Invalid(f"`reference` is one of the `models`: {listed}.")
    if unknown := sorted(request.runtimes.keys() - set(request.models)):
        raise Invalid(f"`runtimes` names {unknown[0]!r}, which is not one of the `models`: {listed}.")
    if LABEL in request.labels:
        raise Invalid(f"`labels`: its simulations have the label `{LABEL}` already; choose another name.")


def _check_different(names: Sequence[str], provenances: Sequence[Provenance]) -> None:
    """Raise Invalid if two of these are the same bytes in the same runtime: they have the same results."""
    seen: dict[tuple[str, str], str] = {}
    for name, provenance in zip(names, provenances, strict=True):
        identity = provenance.played_model.digest, provenance.played_model.runtime
        if identity in seen:
            raise Invalid(f"`models`: {seen[identity]} and {name} are the same model; each can be compared once.")
        seen[identity] = name


def _check_question(request: ComparisonRequest, resolved: Resolved) -> tuple[int, float, Method]:
    """Return the number of scenarios, and what the platform decides of the request: its margin and its method.

    Raise Invalid for a metric, for scenarios that cannot be compared, and for claims that cannot be shown.
    """
    declared = declared_results(played(resolved.provenance.dataset).definition)
    metric = judged_metric(declared, request.metric)
    if metric is None:
        raise Invalid(f"Name a `metric`: the dataset has no score. {metrics_with_direction(declared)}")
    try:
        margin = checked_margin(metric, MetricScale.of(metric, request.bound), request.margin)
        method = method_of(request.design, request.method)
    except ValueError as error:
        raise Invalid(f"{error}{others_with_direction(metric, declared)}") from None
    if request.until in (Claim.EQUIVALENT, Claim.NOT_WORSE) and not margin:
        raise Invalid(
            f"`until`: {request.until.value} needs a `margin` above 0, in the unit of `{metric.name}`. Where the"
            " dataset declares no range of it, name a `bound` as well, the largest difference that counts."
        )
    if resolved.dataset.declared.gang:
        raise Invalid(f"{resolved.dataset.name} is for gangs, which are not compared.")
    tasks = resolved.provenance.play.tasks
    plan = TaskPlan(tasks)
    if plan.scenarios < 2:
        raise Invalid("A comparison needs at least two scenarios: choose more with `scenarios`.")
    if plan.scenarios > MOST_SCENARIOS:
        raise TooManyTasks(f"A comparison has at most {MOST_SCENARIOS:,} scenarios: choose fewer with `scenarios`.")
    if len(set(tasks["select"].get("tasks", ()))) < len(tasks["select"].get("tasks", ())):
        raise Invalid("`scenarios.tasks` names a scenario twice; `repeat` plays each several times.")
    return plan.scenarios, margin, method


def _check_comparable(joining: Provenance, reference: Provenance) -> None:
    """Raise Conflict if a model that joins would be simulated by another simulator than the reference was."""
    versions = [(provenance.simulator, provenance.platform.windtunnel) for provenance in (joining, reference)]
    if versions[0] != versions[1]:
        raise Conflict(
            "The simulator or the platform has changed since the reference was simulated, so the results would not be"
            " comparable. Begin a new comparison."
        )


def _submission(request: ComparisonRequest, dataset: str, model: str) -> Submission:
    values = {name: getattr(request, name) for name in _SUBMISSION} | {"dataset": dataset}
    return Submission(model=model, runtime=request.runtimes.get(model), model_seeds=BY_SCENARIO, **values)


def _add_model(
    c: Connection, caller: Caller, id: str, ordinal: int, submission: Submission, resolved: Resolved, now: float
) -> None:
    """Insert a model; its simulations have the comparison's id as a label."""
    Datasets.keep(c, caller.scope, resolved.dataset)
    if resolved.model is not None:
        Models.keep(c, caller.scope, resolved.model)
    spec = msgspec.to_builtins(submission)
    spec["labels"] = dict(submission.labels) | {LABEL: id}
    model = resolved.provenance.model
    values = {"name": model.name, "digest": model.digest, "spec": json.dumps(spec)}
    store.add_model(c, id, ordinal, values | {"provenance": json.dumps(resolved.provenance.document())}, now)


def _move_models(
    c: Connection, caller: Caller, id: str, current: Sequence[ComparisonState], following: ComparisonState, now: float
) -> list[ComparedModelRow]:
    """Move the models in these states to another; return their rows."""
    reference = COMPARISONS.find(c, caller.scope, id).reference
    moved = [row for row in store.models_of(c, [id]) if row.state in current and row.ordinal != reference]
    for row in moved:
        ended = now if following in ENDED else None
        store.change_model(c, id, row.ordinal, state=following.value, reason=None, ended_at=ended)
    return moved


def _complete(c: Connection, play: BatchSimulationRow) -> bool:
    """Return whether a batch's simulation exists, and is on its way or has a result for each task."""
    if play.deleted:
        return False
    if play.runs:
        return play.simulation_state != State.CANCELLING
    total, done, _ = simulations.counts(c, play.simulation_id)
    return done == total
