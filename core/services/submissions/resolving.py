"""Resolution of submissions: names become digests, once; a submission that can never run is refused."""

import dataclasses
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from common.errors import (
    FormatMismatch,
    Invalid,
    NotFound,
    NotPlayable,
    TooManyTasks,
    TrustedNotAllowed,
    UnknownFormat,
    UnknownModel,
)
from common.version import VERSION
from core.domain.access.scopes import Caller
from core.domain.access.shared_kinds import SharedKind
from core.domain.scheduling.communications import mpi
from core.domain.scheduling.eligibility import Eligibility
from core.domain.scheduling.launches import PACKAGED, Gang
from core.domain.scheduling.permissions import require_allowed
from core.domain.submissions.declared_outputs import declared_outputs
from core.domain.submissions.provenance import (
    ModelDependencies,
    PlatformFacts,
    PlaySettings,
    Provenance,
    ResolvedCommunication,
    ResolvedModel,
    ResolvedRuntime,
    ResolvedSimulator,
)
from core.domain.submissions.records import Model
from core.domain.submissions.selection import LARGEST, checked_params, checked_selection, checked_sweep
from core.domain.submissions.submission import MOST_WORLDS, RECORDS, Submission
from core.services.datasets.catalogue import baselines
from core.services.datasets.datasets import PROGRAM, Datasets, check_name
from core.services.scheduling.model_environments import with_lock
from core.services.uploads import shipped_models
from core.services.uploads.models import Models
from datasets.catalogue import Dataset
from runtimes import catalogue, formats
from runtimes.harness.evaluator.tasks import TaskPlan

#: The runtime of packaged simulators.
PACKAGES = "package"
#: The reference to a model of which nothing is known yet, in a submission that is only checked.
UNKNOWN_MODEL = "model"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Dataset, runtime and model of a simulation, and their record, the provenance.

    A model that is named by reference is not known yet; then the runtime is the one that the submission names, if any.
    """

    #: As it was sent, with what a packaged case says of its gang, and the program that its dataset brings.
    submission: Submission
    dataset: Dataset
    runtime: catalogue.Runtime | None
    model: Model | None
    provenance: Provenance
    #: Whether the model's bytes are in the object store; if not, staging puts them there.
    stored: bool


class Resolver:
    """Resolves submissions. ``trusted``: whether the operator allows trusted runs."""

    def __init__(
        self,
        models: Models,
        datasets: Datasets,
        eligibility: Eligibility,
        *,
        sandbox: Mapping[str, object],
        trusted: bool,
    ) -> None:
        self._trusted = trusted
        self._models = models
        self._datasets = datasets
        self.eligibility = eligibility
        self._sandbox = sandbox

    def resolve(self, caller: Caller, submission: Submission, model: Model | None = None) -> Resolved:
        """Resolve a submission; ``model``: the model sent with it. Raise a PlatformError if it can never run."""
        if submission.trusted and not self._trusted:
            raise TrustedNotAllowed
        self.eligibility.check_placement(submission.placement)
        dataset = self._datasets.find(caller, submission.dataset)
        submission = self._with_own_program(submission, model, dataset)
        submission = self._with_case(caller, submission, model, dataset)
        self._check_gang(submission, dataset)
        executors = self.eligibility.with_room(submission.placement, submission.gang)
        require_allowed(executors, submission.placement, submission.gang)
        runtime: catalogue.Runtime | None
        if submission.model_reference is not None:
            if model is not None or submission.model is not None:
                raise Invalid("Name one model: `model`, an `upload` or a `model_reference`.")
            runtime = catalogue.runtime(submission.runtime) if submission.runtime is not None else None
        else:
            runtime, model = self._choose(caller, submission, model, dataset)
        plan = self._plan(submission, dataset)
        _check_outputs(submission, TaskPlan(plan).count)
        _check_names_of_outputs(caller, submission)
        unattended = submission.gang is not None and not msgspec.convert(submission.gang, Gang).attended
        if unattended and TaskPlan(plan).count != 1:
            raise Invalid("A gang of an operator, or with an image of its own, runs its command once: submit one task.")
        if unattended and dataset.declared.extends == PROGRAM:
            raise Invalid(
                f"A gang of an operator, or with an image of its own, does not get the files of {dataset.name}."
            )
        provenance = self._provenance(submission, dataset, runtime, plan)
        if model is not None and runtime is not None:
            provenance = self._described(provenance, runtime, model, model.source)
        return Resolved(submission, dataset, runtime, model, provenance, model is None or self._models.is_stored(model))

    def is_of_gangs(self, caller: Caller, dataset: str) -> bool:
        """Return whether a dataset is for programs. Raise UnknownDataset."""
        return self._datasets.find(caller, dataset).declared.gang

    def require_model(self, caller: Caller, name: str) -> None:
        """Raise UnknownModel for a name that no model has."""
        self._models.get(caller, name)

    def is_there(self, caller: Caller, kind: Literal["model", "dataset"], reference: str) -> bool:
        """Return whether the platform has a model or a dataset of this reference."""
        try:
            if kind == "model":
                self.require_model(caller, reference)
            else:
                self._datasets.digest(caller, reference)
        except (NotFound, UnknownModel):
            return False
        return True

    def with_model(self, provenance: Provenance, model: Model, source: Mapping[str, object]) -> tuple[Provenance, str]:
        """Return a provenance with the model that its submission named by reference, and the name of its runtime.

        Raise FormatMismatch or UnknownFormat if the model does not fit the runtime.
        """
        runtime = self._runtime_of(model, provenance.runtime.name)
        return self._described(provenance, runtime, model, source), runtime.name

    def _with_own_program(self, submission: Submission, model: Model | None, dataset: Dataset) -> Submission:
        """Return a submission with the program and the gang of its dataset, if that brings a program.

        ``model``: the model sent with it. Raise Invalid for another program, or another gang than its size.
        """
        program = dataset.declared.program
        if program is None:
            return submission
        own = shipped_models.describe(PurePath(program.file).stem)
        named = shipped_models.find(submission.model) if submission.model is not None else None
        if (
            model is not None
            or submission.model_reference is not None
            or (submission.model is not None and named != own)
        ):
            raise Invalid(f"{dataset.name} runs a program of its own: leave the model out. `program` runs yours.")
        gang = {**program.gang, **(submission.gang or {})}
        if changed := [name for name in gang if name != "size" and gang[name] != program.gang.get(name)]:
            raise Invalid(f"`gang.{changed[0]}` of {dataset.name} is the dataset's: only `size` can be chosen.")
        return dataclasses.replace(submission, model=own.name, gang=gang)

    def _with_case(self, caller: Caller, submission: Submission, model: Model | None, dataset: Dataset) -> Submission:
        """Return a submission of a packaged case with its runtime, and with the gang that the case describes.

        Members of a gang that is sent count before those of the case.
        """
        runtime = submission.runtime
        if runtime is None and model is None and submission.model is None and submission.model_reference is None:
            runtime = dataset.declared.runtime
        if model is None and submission.model is not None:
            model = self._models.get(caller, submission.model)
        if model is None and runtime == PACKAGES and submission.model_reference is None:
            _, model = self._choose(caller, dataclasses.replace(submission, runtime=runtime), None, dataset)
        if model is None or not formats.formats()[model.format].manifest:
            return submission
        case, sent = self._models.case(model), dict(submission.gang or {})
        size = 1 if "slots" in sent else case.ranks
        gang = {"size": size, "command": case.command, **sent, "communication": PACKAGED}
        return dataclasses.replace(submission, runtime=runtime or PACKAGES, gang=gang)

    def _check_gang(self, submission: Submission, dataset: Dataset) -> None:
        """Raise Invalid for a gang that cannot run here, and for a dataset of gangs without one."""
        if submission.gang is None:
            if dataset.declared.extends == PROGRAM:
                raise NotPlayable(
                    f"The dataset {dataset.name} holds files, not scenarios: a program with a `gang` reads them"
                    " (docs/programs.md); scenarios need a dataset.json (docs/datasets.md)."
                )
            if dataset.declared.gang:
                raise Invalid(f"{dataset.name} is for gangs: add `gang`: {{`size`, `command`}}.")
            return
        if not dataset.declared.gang:
            raise Invalid(f"{dataset.name} is not a dataset for gangs; `program` is.")
        try:
            gang = msgspec.convert(submission.gang, Gang)
        except msgspec.ValidationError as error:
            raise Invalid(f"`gang`: {error}") from None
        if submission.dry_run or submission.workers is not None:
            raise Invalid("A gang has neither a dry run nor `workers`; set its `size`.")
        if submission.trusted:
            raise Invalid("A gang has no evaluator in whose process its program could run; leave `trusted` out.")
        if gang.communication == PACKAGED and submission.runtime != PACKAGES:
            raise Invalid("`gang.communication` is `packaged` for a packaged case alone (docs/packages.md).")
        if not gang.command:
            raise Invalid("`gang.command` is missing: the program that each replica runs, in the folder of the model.")
        for name, words in (("command", gang.command), ("build", gang.build)):
            if words and not words[0]:
                raise Invalid(f"`gang.{name}` begins with an empty word: its first word is the program to start.")
        self.eligibility.check_gang(submission.placement, submission.gang)

    def _choose(
        self, caller: Caller, submission: Submission, model: Model | None, dataset: Dataset
    ) -> tuple[catalogue.Runtime, Model]:
        runtime = catalogue.runtime(submission.runtime) if submission.runtime is not None else None
        if model is None and submission.model is not None:
            model = self._models.get(caller, submission.model)
        if model is None:
            if runtime is None:
                raise Invalid("Name a model, or a runtime that has a baseline.")
            baseline = baselines(runtime).get(dataset.declared.extends or dataset.name)
            if baseline is None:
                raise Invalid(f"The runtime {runtime.name} has no baseline for {dataset.name}; send a model.")
            model = self._models.baseline(baseline)
        return self._runtime_of(model, runtime.name if runtime is not None else None), model

    @staticmethod
    def _runtime_of(model: Model, name: str | None) -> catalogue.Runtime:
        """Return the runtime with this name, or the first that accepts the model; raise if it does not accept it."""
        runtime = catalogue.runtime(name) if name is not None else None
        if runtime is None:
            runtime = next((item for item in catalogue.runtimes().values() if model.format in item.formats), None)
            if runtime is None:
                raise UnknownFormat(f"No runtime accepts models of the format {model.format}.")
        if model.format not in runtime.formats:
            accepted = ", ".join(runtime.formats)
            others = [item.name for item in catalogue.runtimes().values() if model.format in item.formats]
            hint = f" Use the runtime {' or '.join(others)}." if others else ""
            raise FormatMismatch(
                f"The runtime {runtime.name} accepts {accepted}; the model {model.name} is {model.format}.{hint}",
                formats=list(runtime.formats),
            )
        return runtime

    def _plan(self, submission: Submission, dataset: Dataset) -> dict[str, Any]:
        declared = dataset.declared.params
        max_scenarios = dataset.declared.max_tasks or dataset.tasks or LARGEST
        select = checked_selection(submission.scenarios, dataset.tasks, max_scenarios, dataset.name)
        sweep = checked_sweep(declared, submission.sweep, dataset.name)
        if not 1 <= submission.repeat <= LARGEST:
            raise Invalid(f"`repeat` must be in 1..{LARGEST:,}.")
        selected = (
            len(select["tasks"])
            if "tasks" in select
            else select.get("sample") or select["range"][1] - select["range"][0]
        )
        total = selected * submission.repeat * math.prod(len(values) for values in sweep.values())
        if total > LARGEST:
            raise TooManyTasks(
                f"Sweep x repeat x scenarios gives {total:,} tasks; a simulation has at most {LARGEST:,}."
            )
        return {
            **({"model_seeds": submission.model_seeds} if submission.model_seeds is not None else {}),
            "seed": submission.seed,
            "dataset": dataset.seeds,
            "total_scenarios": dataset.tasks if dataset.tasks is not None else max_scenarios,
            "select": select,
            "sweep": sweep,
            "repeat": submission.repeat,
            "params": checked_params(declared, submission.params, dataset.name),
        }

    def _provenance(
        self, submission: Submission, dataset: Dataset, runtime: catalogue.Runtime | None, plan: dict[str, Any]
    ) -> Provenance:
        """Return the provenance without a model, which `_described` adds."""
        declared = dataset.declared
        record = submission.record or ("all" if declared.record else "none")
        if record not in RECORDS:
            raise Invalid(f"`record` is one of {', '.join(RECORDS)}.")
        worlds = None if submission.worlds == "auto" else submission.worlds
        if worlds is not None and not 1 <= worlds <= MOST_WORLDS:
            raise Invalid(f"`worlds` must be in 1..{MOST_WORLDS}, or auto.")
        gang = msgspec.convert(submission.gang, Gang) if submission.gang is not None else None
        model = ResolvedModel(name="", version=None, digest=None, format=None)
        if (reference := submission.model_reference) is not None:
            source = {"reference": reference, "connection": submission.connection}
            model = replace(model, name=_name_of(reference), source=source)
        return Provenance(
            model=model,
            runtime=ResolvedRuntime(name=runtime.name if runtime is not None else None, environment=None),
            dataset=self._datasets.frozen(dataset),
            simulator=ResolvedSimulator(
                name=dataset.simulator, environment=catalogue.simulators()[dataset.simulator].digest
            ),
            platform=PlatformFacts(windtunnel=VERSION, machine=platform.machine(), sandbox=dict(self._sandbox)),
            communication=_communication(gang) if declared.ranks is None else _platforms(mpi.NAME),
            play=PlaySettings(
                tasks=plan,
                params=plan["params"],
                record=record,
                deadline=declared.deadline,
                dry_run=submission.dry_run,
                isolation=declared.isolation,  # the dataset's, until the model's format is known
                batch=int(plan["params"].get("batch", 1)),
                worlds=worlds,
                trusted=submission.trusted,
                start="task" if gang is None else gang.start,
            ),
        )

    def _described(
        self,
        provenance: Provenance,
        runtime: catalogue.Runtime,
        model: Model,
        source: Mapping[str, object] | None,
    ) -> Provenance:
        """Return a provenance with its model and what follows from that: runtime, isolation, dependencies."""
        format = runtime.formats[model.format]
        if provenance.play.trusted and format.format.start is not None:
            raise FormatMismatch(
                f"`trusted` loads a model in the evaluator's process, and a model of the format {model.format} starts"
                " programs of its own: leave `trusted` out.",
                formats=[name for name, each in runtime.formats.items() if each.format.start is None],
            )
        dependencies = None
        if model.dependencies is not None:
            dependencies = ModelDependencies(file=str(model.dependencies["file"]), lock=None)
        communication = provenance.communication
        if dependencies is not None and communication is not None and communication.name in catalogue.FRAMEWORKS:
            communication = None  # it declares its own
        described = replace(
            provenance,
            communication=communication,
            model=ResolvedModel(
                name=model.name,
                version=model.version,
                digest=model.digest,
                format=model.format,
                source=source,
                dependencies=dependencies,
            ),
            runtime=ResolvedRuntime(name=runtime.name, environment=format.environment.digest),
            play=replace(provenance.play, isolation=format.isolation_on(provenance.play.isolation)),
        )
        lock = self._models.lock(model) if dependencies is not None else None
        return described if lock is None else with_lock(described, lock)  # else staging resolves it


def _check_names_of_outputs(caller: Caller, submission: Submission) -> None:
    """Raise NotPermitted for what the caller's token may not make: a job makes it later, without that token."""
    for name, output in declared_outputs(submission.outputs).items() if caller.patterns else ():
        kind = SharedKind.MODELS if output.kind == "model" else SharedKind.DATASETS
        if kind in caller.patterns.by_kind:
            if output.name is None:
                raise Invalid(f"`outputs.{name}.name`: name it, because your token is limited to some {kind.value}.")
            caller.patterns.require(kind, output.name)


def _check_outputs(submission: Submission, tasks: int) -> None:
    """Raise Invalid for outputs that can never be made. ``tasks``: the number of tasks."""
    outputs = declared_outputs(submission.outputs)
    if submission.gang is None or not msgspec.convert(submission.gang, Gang).attended:
        for name, output in outputs.items():
            if output.file is not None:
                raise Invalid(
                    f"`outputs.{name}.file` is a file of a program: add a `gang` that the platform starts itself, or"
                    " leave `file` out for the results as a dataset."
                )
    if outputs and submission.dry_run:
        raise Invalid("A dry run has no `outputs`.")
    for name, output in outputs.items():
        if output.task is not None and not 0 <= output.task < tasks:
            raise Invalid(f"`outputs.{name}.task`: there is no task {output.task}; there are {tasks}, numbered from 0.")
        if output.runtime is not None:
            catalogue.runtime(output.runtime)
        if output.format is not None and output.format not in formats.formats():
            raise UnknownFormat(f"There is no format {output.format[:80]!r}. There are: {formats.listed()}.")
        if output.name in shipped_models.shipped():
            raise Invalid(f"`outputs.{name}`: the model {output.name!r} ships with the platform; choose another name.")
        if output.kind == "dataset":
            check_name(output.name or name)


def _communication(gang: Gang | None) -> ResolvedCommunication | None:
    """Return what the platform has of a gang's communication model; None: nothing, or its image brings that."""
    if gang is None or not gang.attended:
        return None
    return _platforms(gang.communication)


def _platforms(communication: str) -> ResolvedCommunication | None:
    """Return what the platform has of a communication model; None: nothing."""
    environment = catalogue.communications().get(communication)
    return None if environment is None else ResolvedCommunication(name=environment.name, environment=environment.digest)


def _name_of(reference: str) -> str:
    """Return what a model is called until it is imported: the last part of its reference."""
    return reference.rstrip("/").rpartition("/")[2][:100] or reference[:100]
