"""New simulations: a submission is resolved to digests once, outside of a transaction, and becomes rows in one."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime

import msgspec

from common.errors import Invalid
from common.ids import new_id
from core.domain.access.scopes import Caller, Scope
from core.domain.scheduling.states import State
from core.domain.submissions.provenance import DatasetVersion, ResolvedDataset
from core.domain.submissions.records import Model
from core.domain.submissions.submission import Submission
from core.notifications.notifier import Notifier
from core.services.datasets.catalogue import find_dataset
from core.services.datasets.catalogue import pinned as pinned_dataset
from core.services.datasets.datasets import Datasets
from core.services.simulations import dry_runs
from core.services.submissions.model_imports import ModelImports
from core.services.submissions.resolving import Resolver
from core.services.uploads.models import Models
from core.services.uploads.models import pinned as pinned_model
from core.store import run_logs
from core.store import simulations as store
from core.store.database import Connection
from datasets.catalogue import Dataset
from runtimes.harness.evaluator.tasks import TaskPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class NewSimulation:
    """A submission that is resolved, and not yet stored.

    ``total``: number of its tasks. ``model_import``: the row of its model's import, if any.
    """

    id: str
    scope: Scope
    moment: datetime
    dry_run: bool
    dataset: Dataset
    model: Model | None
    row: Mapping[str, object]
    stage: Mapping[str, object]
    total: int
    model_import: Mapping[str, str] | None
    logged_to: str | None


class NewSimulations:
    """Resolves submissions, inserts what they become, and announces it."""

    def __init__(self, notifier: Notifier, resolver: Resolver, imports: ModelImports, *, most_dry_runs: int) -> None:
        self._notifier = notifier
        self._resolver = resolver
        self._imports = imports
        self._most_dry_runs = most_dry_runs

    def resolve(
        self, caller: Caller, submission: Submission, model: Model | None = None, *, retry_of: str | None = None
    ) -> NewSimulation:
        """Resolve a submission; ``model``: the model sent with it. Raise a PlatformError if it can never run."""
        resolved = self._resolver.resolve(caller, submission, model)
        submission, dataset, provenance = resolved.submission, resolved.dataset, resolved.provenance
        wanted = self._import_of(caller, submission)
        moment = datetime.now(UTC)
        id = new_id(moment)
        row = {
            "id": id,
            "project": caller.scope.owner,
            "state": State.QUEUED.value,
            "spec": json.dumps(msgspec.to_builtins(submission)),
            "provenance": json.dumps(provenance.document()),
            "dataset": dataset.name,
            "runtime": resolved.runtime.name if resolved.runtime is not None else "",
            "model": provenance.model.name,
            "digest": provenance.model.digest or "",
            "awaits_model": int(wanted is not None),
            "labels": json.dumps(dict(submission.labels), sort_keys=True, separators=(",", ":"), ensure_ascii=False),
            "retry_of": retry_of,
            "dry_run": int(submission.dry_run),
            "staging_failures": 0 if resolved.stored else 1,
            "reason": _reason(submission, resolved.stored),
            "dataset_version": provenance.dataset.version,
            "dataset_digest": provenance.dataset.digest,
            "submitted_by": caller.name,
        }
        total = 1 if submission.dry_run else TaskPlan(provenance.play.tasks).count
        stage = {
            "id": f"{id}.0",
            "simulation_id": id,
            "ordinal": 0,
            "total": total,
            "state": "open",
            "align": provenance.play.batch,
        }
        return NewSimulation(
            id=id,
            scope=caller.scope,
            moment=moment,
            dry_run=submission.dry_run,
            dataset=dataset,
            model=resolved.model,
            row=row,
            stage=stage,
            total=total,
            model_import=wanted,
            logged_to=self._imports.origins.run_server(caller.scope.owner, submission, resolved.model),
        )

    def _import_of(self, caller: Caller, submission: Submission) -> dict[str, str] | None:
        """Return the row of the import of a model that is named by reference; None for another model."""
        if submission.model_reference is None:
            return None
        return self._imports.row(
            caller,
            submission.model_reference,
            submission.connection,
            format=submission.format,
            runtime=submission.runtime,
            gang=True if submission.gang is not None else None,
        )

    @staticmethod
    def keep(c: Connection, scope: Scope, news: Collection[NewSimulation]) -> None:
        """Lock what simulations refer to against deletion, in an order that all transactions have; each once.

        Raise UnknownDataset or UnknownModel for what was deleted since they were resolved.
        """
        datasets = {(new.dataset.name, new.dataset.version): new.dataset for new in news}
        models = {new.model.digest: new.model for new in news if new.model is not None}
        for _, dataset in sorted(datasets.items(), key=lambda entry: entry[0]):
            Datasets.keep(c, scope, dataset)
        for _, model in sorted(models.items(), key=lambda entry: entry[0]):
            Models.keep(c, scope, model)

    def insert(self, c: Connection, new: NewSimulation, now: float) -> None:
        """Insert a simulation, which is kept already, as QUEUED."""
        if new.dry_run:
            dry_runs.admit(c, new.scope, self._most_dry_runs, new.moment, now)
        store.add(c, {**new.row, "created_at": now}, new.stage)
        if new.model_import is not None:
            self._imports.add(c, new.model_import, new.id)
        if new.logged_to is not None:
            run_logs.add(c, new.id, new.logged_to)

    def announce(self, news: Collection[NewSimulation]) -> None:
        """Enqueue the imports of simulations that were inserted, and wake the dispatcher."""
        for new in news:
            if new.model_import is not None:
                self._imports.enqueue(new.model_import)
        if news:
            self._notifier.wake("dispatch")


class _ArchivedModel(msgspec.Struct):
    name: str
    digest: str | None


class _ArchivedRuntime(msgspec.Struct):
    name: str | None


class _ArchivedProvenance(msgspec.Struct):
    model: _ArchivedModel
    runtime: _ArchivedRuntime
    dataset: dict[str, object]


class _ArchivedSimulation(msgspec.Struct):
    """The members of an archive's `simulation.json` that its submission is made from."""

    spec: dict[str, object]
    provenance: _ArchivedProvenance


def resubmission(document: Mapping[str, object]) -> Submission:
    """Return the submission of an archive's `simulation.json`, pinned to the same digests."""
    try:
        archived = msgspec.convert(document, _ArchivedSimulation)
        spec, provenance = dict(archived.spec), archived.provenance
        _check_members(spec)
        if provenance.model.digest is not None:  # else its import failed, and is repeated
            model = pinned_model(provenance.model.name, provenance.model.digest)
            spec |= {"model": model, "model_reference": None, "connection": None, "format": None}
        spec["runtime"] = provenance.runtime.name
        # Of a built-in dataset, name and version say which it is.
        named = {} if "extends" in provenance.dataset else {"digest": ""}
        dataset = msgspec.convert(named | provenance.dataset, ResolvedDataset)
        _check_definition(dataset.base)
        spec["dataset"] = pinned_dataset(dataset)
        return msgspec.convert(spec, Submission)
    except msgspec.ValidationError as error:
        raise Invalid(f"This is not the simulation.json of an archive: {error}") from None


def _check_members(spec: Collection[str]) -> None:
    """Raise Invalid for a member that only a later version knows: the results could depend on it."""
    if unknown := sorted(set(spec) - {field.name for field in fields(Submission)}):
        raise Invalid(
            f"Its `spec` has `{unknown[0][:100]}`, which this version of the platform does not know: a later one wrote"
            " it. Repeat the simulation there, or submit here what should be simulated."
        )


def _check_definition(dataset: DatasetVersion) -> None:
    """Raise Invalid if a built-in dataset is defined otherwise than when it was simulated."""
    present = find_dataset(dataset.name, dataset.version).digest
    if dataset.digest not in {"", present}:
        raise Invalid(
            f"The dataset {dataset.name}@{dataset.version} had the digest {dataset.digest[:100]}, and has {present} on"
            " this version of the platform, so that the results would differ. Repeat the simulation on the version that"
            " its provenance names, or submit a new simulation."
        )


def _reason(submission: Submission, stored: bool) -> str | None:
    """Return why a new simulation waits before it is its turn."""
    if submission.model_reference is not None:
        return f"its model is being imported from {submission.model_reference}"
    return None if stored else "the object store does not answer"
