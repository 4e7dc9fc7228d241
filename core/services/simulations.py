"""Simulations: submit, look, list, cancel, retry, delete; everything is resolved to digests, once, at submission."""

import json
import math
import platform
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from core.domain.admission import why_waiting
from core.domain.contexts import Context
from core.domain.ids import new_id
from core.domain.launches import Gang, Placement, replicas
from core.domain.records import DatasetRef, Model, ModelRef, RuntimeRef, Simulation, Submission, Tasks
from core.domain.selection import LARGEST, checked_params, checked_selection, checked_sweep
from core.domain.states import CANCELLABLE, FINAL, State
from core.errors import (
    FormatMismatch,
    IdempotencyMismatch,
    IllegalTransition,
    Invalid,
    NotFinished,
    TooManyTasks,
    UnknownFormat,
    Unsupported,
)
from core.services.bells import Bell
from core.services.datasets import Datasets
from core.services.hub import Hub
from core.services.models import PROJECT, Models
from core.services.retries import Inheritance, inherit
from core.store import executors, ranges
from core.store import simulations as store
from core.store.database import Connection, Database
from datasets.catalogue import Dataset
from datasets.stores.base import ObjectStore
from runtimes import catalogue
from runtimes.harness.tasks import count

VERSION = "0.1.0"
#: For how long an Idempotency-Key is remembered, in seconds.
REMEMBERED = 86_400.0
RECORDS = ("none", "failures", "all")


class Simulations:
    """What a person does with simulations."""

    def __init__(
        self,
        database: Database,
        store: ObjectStore,
        models: Models,
        datasets: Datasets,
        bell: Bell,
        hub: Hub,
        *,
        contexts: Sequence[Context],
        sandbox: Mapping[str, Any],
        gangs: Collection[str] = (),
    ) -> None:
        self._database = database
        self._store = store
        self._models = models
        self._datasets = datasets
        self._bell = bell
        self._hub = hub
        self._contexts = {one.name: one for one in contexts}
        self._sandbox = sandbox
        self._gangs = frozenset(gangs)  # the executors that can start some

    # -- submit

    def submit(
        self,
        submission: Submission,
        *,
        model: Model | None = None,
        key: str | None = None,
        request_digest: str | None = None,
        principal: str = "local",
        inheritance: Inheritance | None = None,
        retry_of: str | None = None,
    ) -> tuple[Simulation, bool]:
        """Resolve everything to digests, refuse what can never fit, write it down, ring the bell.

        With an idempotency ``key`` the same request gives the first answer again (the second member is then true).
        """
        if key is not None and (replayed := self._replayed(principal, key, request_digest or "")) is not None:
            return replayed, True
        self._check_place(submission)
        dataset = self._datasets.find(submission.dataset)
        self._check_gang(submission, dataset)
        runtime, model = self._resolve(submission, model, dataset)
        plan = self._plan(submission, dataset)
        total = 1 if submission.dry_run else count(plan)
        provenance = self._provenance(submission, dataset, runtime, model, plan)
        moment = datetime.now(UTC)
        id = new_id(moment)
        spec = msgspec.to_builtins(submission)
        row = {
            "id": id,
            "project": PROJECT,
            "state": State.QUEUED.value,
            "spec": json.dumps(spec),
            "provenance": json.dumps(provenance),
            "dataset": dataset.name,
            "runtime": runtime.name,
            "model": model.name,
            "digest": model.digest,
            "labels": json.dumps(dict(submission.labels), sort_keys=True, separators=(",", ":"), ensure_ascii=False),
            "retry_of": retry_of,
            "dry_run": int(submission.dry_run),
        }
        stage = {
            "id": f"{id}.0",
            "simulation_id": id,
            "ordinal": 0,
            "total": total,
            "state": "open",
            "align": int(provenance["play"]["batch"]),
        }

        def write(c: Connection) -> str | None:
            now = self._database.now(c)
            if key is not None:
                known = store.remember_key(c, principal, key, request_digest or "", id, now, now + REMEMBERED)
                if known is not None:
                    if known.digest != request_digest:
                        raise IdempotencyMismatch()
                    return str(known.simulation_id)
            self._datasets.keep(c, dataset)
            store.add(c, row | {"created_at": now}, stage)
            if inheritance is not None:
                inheritance.apply(c, id, f"{id}.0", total)
            return None

        first = self._database.write(write)
        if first is not None:
            return self.get(first), True
        self._bell.ring("dispatch")
        return self.get(id), False

    def _check_place(self, submission: Submission) -> None:
        """Refuse what no executor could be asked for."""
        try:
            placement = msgspec.convert(submission.placement, Placement)
        except msgspec.ValidationError as error:
            raise Invalid(f"`placement`: {error}") from None
        if placement.executor and placement.executor not in self._contexts:
            raise Invalid(f"There is no executor {placement.executor!r}; there are {', '.join(self._contexts)}.")

    def _check_gang(self, submission: Submission, dataset: Dataset) -> None:
        """Refuse a gang where none is played, or none could be, and a gang's dataset without one."""
        if submission.gang is None:
            if dataset.definition.get("gang"):
                raise Invalid(f"{dataset.name} is played by gangs; say how many: `gang`: {{`size`, `command`}}.")
            return
        if not dataset.definition.get("gang"):
            raise Invalid(f"{dataset.name} is no dataset for gangs; `program` is.")
        try:
            gang = msgspec.convert(submission.gang, Gang)
        except msgspec.ValidationError as error:
            raise Invalid(f"`gang`: {error}") from None
        if submission.dry_run or submission.workers is not None:
            raise Invalid("A gang has neither a dry run nor `workers`; its `size` says how wide it is.")
        if not gang.command:
            raise Invalid("`gang.command` says what each replica runs, in the folder of the model.")
        count = replicas(submission.gang)
        named = submission.placement.get("executor")
        able = [self._contexts[name] for name in self._gangs if named in {None, "", name}]
        if not able:
            raise Invalid("No executor here starts gangs; a Kubernetes does.")
        if all(one.share(count) < count for one in able):
            most = max(one.share(None) for one in able)
            raise Invalid(f"A gang of {count} replicas fits nowhere here; {most} are the most.")

    def _replayed(self, principal: str, key: str, digest: str) -> Simulation | None:
        with self._database.read() as c:
            row = store.replayed(c, principal, key, self._database.now(c))
        if row is None:
            return None
        if row.digest != digest:
            raise IdempotencyMismatch()
        return self.get(row.simulation_id)

    def _resolve(
        self, submission: Submission, model: Model | None, dataset: Dataset
    ) -> tuple[catalogue.Runtime, Model]:
        runtime = catalogue.runtime(submission.runtime) if submission.runtime is not None else None
        if model is None and submission.model is not None:
            model = self._models.get(submission.model)
        if model is None:
            if runtime is None:
                raise Invalid("Name a model, or a runtime whose baseline is to drive.")
            baseline = runtime.baselines.get(dataset.definition.get("extends", dataset.name))
            if baseline is None:
                raise Invalid(f"The runtime {runtime.name} brings no baseline for {dataset.name}; send a model.")
            model = self._models.get(baseline)
        if runtime is None:
            runtime = next((one for one in catalogue.runtimes().values() if model.format in one.formats), None)
            if runtime is None:
                raise UnknownFormat(f"No runtime takes a model of the format {model.format}.")
        if model.format not in runtime.formats:
            takes = ", ".join(runtime.formats)
            able = [one.name for one in catalogue.runtimes().values() if model.format in one.formats]
            hint = f" Use the runtime {' or '.join(able)}." if able else ""
            raise FormatMismatch(
                f"The runtime {runtime.name} takes {takes}; the model {model.name} is {model.format}.{hint}",
                formats=list(runtime.formats),
            )
        return runtime, model

    def _plan(self, submission: Submission, dataset: Dataset) -> dict[str, Any]:
        declared = dataset.definition.get("params", {})
        most = int(dataset.definition.get("max_tasks") or dataset.tasks or LARGEST)
        select = checked_selection(submission.scenarios, dataset.tasks, most, dataset.name)
        sweep = checked_sweep(declared, submission.sweep, dataset.name)
        if not 1 <= submission.repeat <= LARGEST:
            raise Invalid(f"`repeat` lies in 1..{LARGEST:,}.")
        chosen = (
            len(select["tasks"])
            if "tasks" in select
            else select.get("sample") or select["range"][1] - select["range"][0]
        )
        total = chosen * submission.repeat * math.prod(len(values) for values in sweep.values())
        if total > LARGEST:
            raise TooManyTasks(
                f"Sweep x repeat x scenarios gives {total:,} tasks; a simulation has at most {LARGEST:,}."
            )
        return {
            "seed": submission.seed,
            "dataset": dataset.digest,
            "total_scenarios": dataset.tasks if dataset.tasks is not None else most,
            "select": select,
            "sweep": sweep,
            "repeat": submission.repeat,
            "params": checked_params(declared, submission.params, dataset.name),
        }

    def _provenance(
        self, submission: Submission, dataset: Dataset, runtime: catalogue.Runtime, model: Model, plan: dict[str, Any]
    ) -> dict[str, Any]:
        definition = dataset.definition
        record = submission.record or ("all" if definition.get("record") else "none")
        if record not in RECORDS:
            raise Invalid(f"`record` is one of {', '.join(RECORDS)}.")
        format = runtime.formats[model.format]
        # A world that is there to measure the platform says so; elsewhere what a runtime needs is what holds.
        isolation = "launch" if definition.get("isolation") == "launch" else format.isolation
        return {
            "model": {"name": model.name, "version": model.version, "digest": model.digest, "format": model.format},
            "runtime": {"name": runtime.name, "environment": format.environment.digest},
            "dataset": self._datasets.frozen(dataset),
            "simulator": {"name": dataset.simulator, "environment": catalogue.simulators()[dataset.simulator].digest},
            "platform": {"windtunnel": VERSION, "machine": platform.machine(), "sandbox": dict(self._sandbox)},
            "play": {
                "tasks": plan,
                "params": plan["params"],
                "record": record,
                "deadline": definition["deadline"],
                "dry_run": submission.dry_run,
                "isolation": isolation,
                "batch": int(plan["params"].get("batch", 1)),
            },
        }

    # -- look

    def get(self, id: str) -> Simulation:
        """Return one simulation as it stands."""
        with self._database.read() as c:
            return self._view(c, store.find(c, id))

    def list(
        self,
        *,
        state: State | None = None,
        dataset: str | None = None,
        runtime: str | None = None,
        model: str | None = None,
        label: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> tuple[list[Simulation], str | None]:
        """Return a page, newest first, and the cursor of the next."""
        given = {"state": state and state.value, "dataset": dataset, "runtime": runtime, "model": model}
        filters = {name: value for name, value in given.items() if value is not None}
        with self._database.read() as c:
            rows = store.page(c, filters=filters, label=label or {}, after=after, limit=limit + 1)
            found = [self._view(c, row) for row in rows[:limit]]
        return found, found[-1].id if len(rows) > limit else None

    def wait(self, id: str, timeout: float) -> Simulation:
        """Block until the simulation has ended or the time is up; return it as it then stands."""
        deadline = time.monotonic() + timeout
        with self._hub.watching(id):
            while True:
                version = self._hub.version(id)
                found = self.get(id)
                left = deadline - time.monotonic()
                if found.final or left <= 0:
                    return found
                self._hub.wait(id, version, min(left, 1.0))

    def summary(self, id: str) -> dict[str, Any]:
        """Return what `collect` summed up."""
        with self._database.read() as c:
            row = store.find(c, id)
        if row.summary is None:
            raise NotFinished()
        summary: dict[str, Any] = json.loads(row.summary)
        return summary

    def _view(self, c: Connection, row: Any) -> Simulation:
        state = State(row.state)
        provenance = json.loads(row.provenance)
        summary = json.loads(row.summary) if row.summary else None
        progress = json.loads(row.progress) if row.progress else {}
        if summary is not None:
            tasks = Tasks(**summary["tasks"])
        else:
            total, done, failed = store.counts(c, row.id)
            tasks = Tasks(total=total, done=done, failed=failed)
        position = store.queued_before(c, row.id) + 1 if state is State.QUEUED else None
        spec = json.loads(row.spec)
        asked = (spec.get("placement") or {}).get("executor")
        place = self._contexts.get(row.executor or "") or self._contexts.get(asked or "")
        wanted = replicas(spec["gang"]) if spec.get("gang") else spec.get("workers")
        workers = place.share(wanted) if place else max(one.share(wanted) for one in self._contexts.values())
        reason = row.reason
        if position is not None and (away := self._away(c, asked)) is not None:
            reason = away
        elif position is not None:
            reason = why_waiting(position, workers, row.not_before - self._database.now(c), row.reason)
        dataset, model = provenance["dataset"], provenance["model"]
        return Simulation(
            id=row.id,
            state=state,
            attempt=row.attempt,
            model=ModelRef(
                name=model["name"], digest=model["digest"], version=model["version"], format=model["format"]
            ),
            runtime=RuntimeRef(name=row.runtime),
            dataset=DatasetRef(name=dataset["name"], version=dataset["version"], digest=dataset["digest"]),
            tasks=tasks,
            metrics=(summary or progress).get("metrics", {}),
            approximate=summary is None,
            reason=reason,
            position=position,
            eta=progress.get("eta") if state is State.RUNNING else None,
            created_at=_moment(row.created_at),
            started_at=row.started_at and _moment(row.started_at),
            ended_at=row.ended_at and _moment(row.ended_at),
            labels=json.loads(row.labels),
            spec=spec,
            provenance=provenance,
            workers=workers,
            executor=row.executor,
            retry_of=row.retry_of,
            dry_run=bool(row.dry_run),
        )

    def _away(self, c: Connection, asked: str | None) -> str | None:
        """Say which place a queued simulation waits for, if every one that it could run in takes nothing now."""
        ill = {row.name: row.said for row in executors.all(c) if not row.well}
        able = [asked] if asked else list(self._contexts)
        if not all(name in ill for name in able):
            return None
        return "; ".join(f"waits for {name}: {ill[name] or 'it does not answer'}" for name in able)

    # -- change

    def cancel(self, id: str) -> Simulation:
        """Ask a simulation to stop; twice is harmless, and so is asking one that is stopping."""

        def ask(c: Connection) -> None:
            now = self._database.now(c)
            state = State(store.find(c, id).state)
            if state is State.CANCELLING or state is State.CANCELLED:
                return
            if state not in CANCELLABLE:
                raise IllegalTransition(
                    f"The simulation has {state} already; there is nothing to cancel.", state=str(state)
                )
            following = State.CANCELLED if state is State.QUEUED else State.CANCELLING
            ranges.close_early(c, id)
            store.move(c, id, state, following, now, reason="cancelled by its owner")

        self._database.write(ask)
        self._bell.ring("dispatch")
        self._bell.announce(id)
        return self.get(id)

    def resize(self, id: str, workers: int) -> Simulation:
        """Change how many pairs of player and host are at work at once, while it runs or before."""

        def write(c: Connection) -> None:
            row = store.find(c, id)
            if State(row.state) in FINAL:
                raise IllegalTransition(f"The simulation has {row.state} already; it has no width any more.")
            if json.loads(row.spec).get("gang"):
                raise Unsupported("A gang keeps its size. Cancel it and submit it anew.")
            store.respecify(c, id, json.loads(row.spec) | {"workers": workers})
            store.say(c, id, "width", {"workers": workers}, self._database.now(c))

        self._database.write(write)
        self._bell.ring("dispatch")
        self._bell.announce(id)
        return self.get(id)

    def retry(self, id: str, only_failed: bool = True) -> Simulation:
        """Run again what did not succeed, or everything, as a new simulation; final stays final.

        What is kept is taken over by reference: the new simulation has every result of both.
        """
        with self._database.read() as c:
            row = store.find(c, id)
        if State(row.state) not in FINAL:
            raise NotFinished("A simulation that goes on cannot be retried; cancel it first.")
        submission = self.resubmit({"spec": json.loads(row.spec), "provenance": json.loads(row.provenance)})
        inheritance = inherit(self._database, self._store, id) if only_failed else None
        return self.submit(submission, inheritance=inheritance, retry_of=id)[0]

    @staticmethod
    def resubmit(document: Mapping[str, Any]) -> Submission:
        """Read a `simulation.json` of an archive: the same request, pinned to the same digests."""
        try:
            spec, provenance = dict(document["spec"]), document["provenance"]
            spec["model"] = provenance["model"]["digest"]
            spec["runtime"] = provenance["runtime"]["name"]
            dataset = provenance["dataset"]
            # A number of a dataset of one's own may mean something else where the archive was brought to.
            own = "extends" in dataset
            spec["dataset"] = dataset["digest"] if own else f"{dataset['name']}@{dataset['version']}"
            return msgspec.convert(spec, Submission)
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            raise Invalid(f"This is not the simulation.json of an archive: {error}") from None

    def delete(self, id: str) -> None:
        """Delete a simulation that has ended: a tombstone first, its objects after."""

        def bury(c: Connection) -> None:
            state = State(store.find(c, id).state)
            if state not in FINAL:
                raise NotFinished("Cancel the simulation before you delete it.")
            store.bury(c, id, self._database.now(c))

        self._database.write(bury)
        self._bell.announce(id)
        self._bell.ring("dispatch")


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
