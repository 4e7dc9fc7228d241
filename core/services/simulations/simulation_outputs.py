"""Outputs of simulations: files that programs left become models and datasets, with where they come from.

Each step may be repeated: equal bytes under the same name are the same version of a model, and of a source there is one
version of a dataset. So the job that does this may be killed at any point.
"""

from collections.abc import Mapping

import msgspec

from common.errors import Invalid, PlatformError, StoreUnavailable
from core.domain.submissions.declared_outputs import DeclaredOutput, LeftFile, MadeOutput, choose_file
from core.services.datasets.datasets import Datasets
from core.services.datasets.source_kinds.artifact_source import ArtifactSource
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

    def __init__(self, database: Database, read: Results, models: Models, datasets: Datasets) -> None:
        self._database = database
        self._read = read
        self._models = models
        self._datasets = datasets

    def make(self, simulation: str, declared: Mapping[str, DeclaredOutput]) -> dict[str, MadeOutput] | None:
        """Return what became of the outputs of a simulation whose tasks all have results, by their names.

        None: a dataset is being registered, and the next call may know more. Raise StoreUnavailable.
        """
        left = self._left(simulation, {output.file for output in declared.values()})
        made: dict[str, MadeOutput] = {}
        waits = False
        for name, output in declared.items():
            try:
                result = self._make(simulation, name, output, choose_file(output, left[output.file]))
            except StoreUnavailable:
                raise
            except PlatformError as error:
                result = MadeOutput(kind=output.kind, file=output.file, error=error.detail)
            if result is None:
                waits = True
            else:
                made[name] = result
        return None if waits else made

    def _left(self, simulation: str, names: set[str]) -> dict[str, list[LeftFile]]:
        """Return the files of these names that tasks which are `ok` left, in task order."""
        left: dict[str, list[LeftFile]] = {name: [] for name in names}
        for body in self._read.lines(simulation):
            for result in map(_decoder.decode, body.splitlines()):
                if result.status == "ok":
                    for artifact in result.artifacts:
                        if artifact.name in names:
                            left[artifact.name].append(LeftFile(result.task, artifact.digest))
        return left

    def _make(self, simulation: str, name: str, output: DeclaredOutput, file: LeftFile) -> MadeOutput | None:
        """Make the model or the dataset of a file; None: the dataset is being registered. Raise a PlatformError."""
        done = MadeOutput(kind=output.kind, file=output.file, task=file.task, digest=file.digest)
        if output.kind == "model":
            content = self._read.artifact(simulation, file.task, output.file)
            model = self._models.add(
                content.read(0, content.size),
                name=output.name,
                filename=output.file.rpartition("/")[2],
                format=output.format,
                runtime=output.runtime,
                digest=file.digest,
                source={"simulation": simulation, "task": file.task, "file": output.file},
                tags=output.tags,
            )
            return msgspec.structs.replace(
                done, id=model.id, name=model.name, reference=pinned(model.name, model.digest)
            )
        with self._database.read() as c:
            artifact = results.artifact(c, simulation, file.task, output.file)
        assert artifact is not None, "the task's result names it"
        source = ArtifactSource(
            artifact=output.file,
            digest=file.digest,
            simulation=simulation,
            task=file.task,
            object=artifact.object,
            offset=artifact.offset,
            bytes=artifact.bytes,
        )
        dataset = output.name or name
        version = self._datasets.version_of_source(dataset, source)
        if version is None:
            version = self._datasets.register_source(dataset, source, output.tags)
        if version.state == "registering":
            return None
        if version.digest is None:
            raise Invalid(f"the dataset {dataset} cannot be registered: {version.reason}")
        return msgspec.structs.replace(done, id=version.id, name=version.name, reference=version.digest)
