"""Resolving: what a submission asks for, to digests, once; what can never fit is refused in words."""

import math
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from core.domain.executor_config import ExecutorConfig
from core.domain.launches import Gang, Placement, replicas
from core.domain.records import Model, Submission
from core.domain.selection import LARGEST, checked_params, checked_selection, checked_sweep
from core.services.datasets.datasets import Datasets
from core.services.uploads.models import Models
from datasets.catalogue import Dataset
from errors import FormatMismatch, Invalid, TooManyTasks, UnknownFormat
from runtimes import catalogue
from runtimes.harness.evaluator.tasks import count

VERSION = "0.2.0"
RECORDS = ("none", "failures", "all")


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a simulation is made of, and its record of that."""

    dataset: Dataset
    runtime: catalogue.Runtime
    model: Model
    provenance: dict[str, Any]


class Resolver:
    """Knows what there is: models, datasets, runtimes, and where gangs can start (``gangs``: names of executors)."""

    def __init__(
        self,
        models: Models,
        datasets: Datasets,
        executor_configs: Sequence[ExecutorConfig],
        *,
        sandbox: Mapping[str, Any],
        gang_executors: Collection[str],
    ) -> None:
        self._models = models
        self._datasets = datasets
        self.executor_configs = {config.name: config for config in executor_configs}
        self._sandbox = sandbox
        self._gang_executors = frozenset(gang_executors)

    def resolve(self, submission: Submission, model: Model | None = None) -> Resolved:
        """Resolve a submission; ``model``, where it came along. Raise a PlatformError if it can never run."""
        self._check_place(submission)
        dataset = self._datasets.find(submission.dataset)
        self._check_gang(submission, dataset)
        runtime, model = self._choose(submission, model, dataset)
        plan = self._plan(submission, dataset)
        if submission.gang is not None and not msgspec.convert(submission.gang, Gang).attended and count(plan) != 1:
            raise Invalid(
                "A gang of an operator's, or in an image of its own, runs its command once: ask for one task."
            )
        return Resolved(dataset, runtime, model, self._provenance(submission, dataset, runtime, model, plan))

    def _check_place(self, submission: Submission) -> None:
        """Refuse what no executor could be asked for."""
        try:
            placement = msgspec.convert(submission.placement, Placement)
        except msgspec.ValidationError as error:
            raise Invalid(f"`placement`: {error}") from None
        if placement.executor and placement.executor not in self.executor_configs:
            raise Invalid(f"There is no executor {placement.executor!r}; there are {', '.join(self.executor_configs)}.")

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
        size = replicas(submission.gang)
        named = submission.placement.get("executor")
        able = [self.executor_configs[name] for name in self._gang_executors if named in {None, "", name}]
        if not able:
            raise Invalid("No executor here starts gangs; a Kubernetes does.")
        if all(one.workers_for(size) < size for one in able):
            most = max(one.workers_for(None) for one in able)
            raise Invalid(f"A gang of {size} replicas fits nowhere here; {most} are the most.")

    def _choose(self, submission: Submission, model: Model | None, dataset: Dataset) -> tuple[catalogue.Runtime, Model]:
        runtime = catalogue.runtime(submission.runtime) if submission.runtime is not None else None
        if model is None and submission.model is not None:
            model = self._models.get(submission.model)
        if model is None:
            if runtime is None:
                raise Invalid("Name a model, or a runtime whose baseline is to drive.")
            baseline = runtime.baselines.get(dataset.definition.get("extends", dataset.name))
            if baseline is None:
                raise Invalid(f"The runtime {runtime.name} brings no baseline for {dataset.name}; send a model.")
            model = self._models.baseline(baseline)
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
