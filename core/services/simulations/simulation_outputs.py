"""Outputs of simulations: files that programs left, or all results, become models and datasets.

Each step may be repeated: equal bytes under the same name are the same version of a model, and of a source there is one
version of a dataset. So the job that does this may be killed at any point.
"""

from collections.abc import Mapping, Sequence

import msgspec

from common.errors import Invalid, PlatformError, StoreUnavailable
from core.domain.access.scopes import Caller
from core.domain.submissions.declared_outputs import DeclaredOutput, LeftFile, MadeOutput, choose_file
from core.services.datasets.datasets import Datasets
from core.services.datasets.source_kinds.artifact_source import ArtifactSource
from core.services.simulations.packed_results import ALL_TASKS, RESULTS_NAME, ResultPacking
from core.services.simulations.results import Results
from core.services.uploads.models import Models, pinned
from core.store import results
from core.store.database import Database


class _NamedFile(msgspec.Struct):
    name: str
    digest: str = ""


class _LeavingTask(msgspec.Struct):
    task: int
    status: str
    artifacts: list[_NamedFile] = []


_decoder = msgspec.json.Decoder(_LeavingTask)


class SimulationOutputs:
    """Makes models and datasets of files that a simulation's tasks left."""

    def __init__(
        self, database: Database, read: Results, models: Models, datasets: Datasets, packing: ResultPacking
    ) -> None:
        self._database = database
        self._packing = packing
        self._read = read
        self._models = models
        self._datasets = datasets

    def make(
        self, caller: Caller, simulation: str, declared: Mapping[str, DeclaredOutput], *, gang: bool = False
    ) -> dict[str, MadeOutput] | None:
        """Return what became of the outputs of a simulation whose tasks all have results, by their names.

        ``gang``: models are for gangs, which run files of no known format. None: a dataset is being registered, and the
        next call may know more. Raise StoreUnavailable.
        """
        left = self._left(caller, simulation, {output.file for output in declared.values() if output.file is not None})
        made: dict[str, MadeOutput] = {}
        waits = False
        for name, output in declared.items():
            try:
                if output.file is None:
                    result = self._make_whole(caller, simulation, output.name or name, output)
                else:
                    file = choose_file(output, left[output.file])
                    result = self._make(caller, simulation, name, output, file, gang=gang)
            except StoreUnavailable:
                raise
            except PlatformError as error:
                result = MadeOutput(kind=output.kind, file=output.file, error=error.detail)
            if result is None:
                waits = True
            else:
                made[name] = result
        return None if waits else made

    def _left(self, caller: Caller, simulation: str, names: set[str]) -> dict[str, list[LeftFile]]:
        """Return the files of these names that tasks which are `ok` left, in task order."""
        left: dict[str, list[LeftFile]] = {name: [] for name in names}
        for body in self._read.lines(caller, simulation):
            for result in map(_decoder.decode, body.splitlines()):
                if result.status == "ok":
                    for artifact in result.artifacts:
                        if artifact.name in names:
                            left[artifact.name].append(LeftFile(result.task, artifact.digest))
        return left

    def _make(
        self, caller: Caller, simulation: str, name: str, output: DeclaredOutput, file: LeftFile, *, gang: bool
    ) -> MadeOutput | None:
        """Make the model or the dataset of a file; None: the dataset is being registered. Raise a PlatformError."""
        path = output.file
        assert path is not None, "an output of all results is made by `_make_whole`"
        done = MadeOutput(kind=output.kind, file=path, task=file.task, digest=file.digest)
        if output.kind == "model":
            content = self._read.artifact(caller, simulation, file.task, path)
            model = self._models.add(
                caller,
                content.read(0, content.size),
                name=output.name,
                filename=path.rpartition("/")[2],
                format=output.format,
                runtime=output.runtime,
                digest=file.digest,
                source={"simulation": simulation, "task": file.task, "file": path},
                tags=output.tags,
                gang=gang,
            )
            return msgspec.structs.replace(
                done, id=model.id, name=model.name, reference=pinned(model.name, model.digest)
            )
        with self._database.read() as c:
            artifact = results.artifact(c, simulation, file.task, path)
        assert artifact is not None, "the task's result names it"
        source = ArtifactSource(
            artifact=path,
            digest=file.digest,
            simulation=simulation,
            task=file.task,
            object=artifact.object,
            offset=artifact.offset,
            bytes=artifact.bytes,
        )
        return self._register(caller, output.name or name, source, output.tags, done)

    def _make_whole(self, caller: Caller, simulation: str, dataset: str, output: DeclaredOutput) -> MadeOutput | None:
        """Make a dataset of all results and artifacts; None: it is being registered. Raise a PlatformError."""
        packed = self._packing.pack(caller, simulation)
        done = MadeOutput(kind=output.kind, file=None, digest=packed.digest)
        source = ArtifactSource(
            artifact=RESULTS_NAME,
            digest=packed.digest,
            simulation=simulation,
            task=ALL_TASKS,
            object=packed.object,
            offset=0,
            bytes=packed.bytes,
        )
        return self._register(caller, dataset, source, output.tags, done)

    def _register(
        self, caller: Caller, dataset: str, source: ArtifactSource, tags: Sequence[str], done: MadeOutput
    ) -> MadeOutput | None:
        version = self._datasets.version_of_source(caller, dataset, source)
        if version is None:
            version = self._datasets.register_source(caller, dataset, source, tags)
        if version.state == "registering":
            return None
        if version.digest is None:
            raise Invalid(f"the dataset {dataset} cannot be registered: {version.reason}")
        return msgspec.structs.replace(done, id=version.id, name=version.name, reference=version.digest)
