"""Provenance: everything that the results of a simulation depend on, resolved to versions and digests.

The order of the members is that of the stored JSON. A member with a default is left out of it while it has that.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from core.domain.submissions.stored_documents import decode_document


class _ProvenancePart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a provenance."""


class ModelDependencies(_ProvenancePart, frozen=True, kw_only=True):
    """The file in which a model declares its packages, and the digest of their lock; None: not resolved yet."""

    file: str
    lock: str | None


class ResolvedModel(_ProvenancePart, frozen=True, kw_only=True):
    """A model: until it is imported, a model that is named by reference has a name and a source alone."""

    name: str
    version: int | None
    digest: str | None
    format: str | None
    #: The reference and what it was resolved to, as its origin describes that.
    source: Mapping[str, Any] | None = None
    dependencies: ModelDependencies | None = None


class ResolvedRuntime(_ProvenancePart, frozen=True, kw_only=True):
    """A runtime and the digest of the environment of its model server; None: it follows from a model to be imported."""

    name: str | None
    environment: str | None


class ResolvedCommunication(_ProvenancePart, frozen=True, kw_only=True):
    """A gang's communication model, and the digest of the environment that the platform has of it."""

    name: str
    environment: str


class DatasetVersion(_ProvenancePart, frozen=True, kw_only=True):
    """A version of a dataset, by the digest of its definition or of its files."""

    name: str
    version: str
    digest: str


class ResolvedDataset(DatasetVersion, frozen=True, kw_only=True):
    """A simulation's dataset, which can be simulated again after its row was deleted.

    ``extends`` and ``said``: of a registered one, the built-in dataset below it and what its description says.
    """

    extends: DatasetVersion | None = None
    said: Mapping[str, Any] | None = None

    @property
    def base(self) -> DatasetVersion:
        """The built-in dataset whose files an evaluator reads: the dataset itself, or the one that it extends."""
        return self.extends or self


class ResolvedSimulator(_ProvenancePart, frozen=True, kw_only=True):
    """A simulator and the digest of its environment."""

    name: str
    environment: str


class PlatformFacts(_ProvenancePart, frozen=True, kw_only=True):
    """The platform that resolved the submission: its version, its processor, its sandbox."""

    windtunnel: str
    machine: str
    sandbox: Mapping[str, Any]


class PlaySettings(_ProvenancePart, frozen=True, kw_only=True):
    """How the tasks are played: what evaluators get, beside the dataset's definition.

    ``tasks``: the plan (runtimes/harness/evaluator/tasks.py). ``isolation``: of the dataset alone until the model is
    known. ``deadline``: seconds for an action. ``worlds``: None: `auto`. Results depend neither on it nor on
    ``trusted``, unless a trusted model changes its own. ``start``: `launch` if a gang's program was started once for
    its tasks, so that what it keeps from one to the next is its own risk.
    """

    tasks: Mapping[str, Any]
    params: Mapping[str, Any]
    record: str
    deadline: int | float
    dry_run: bool
    isolation: str | None
    batch: int
    worlds: int | None = None
    trusted: bool = False
    start: str = "task"


@dataclass(frozen=True, slots=True)
class PlayedModel:
    """A model whose bytes are known, and what runs it."""

    runtime: str
    format: str
    digest: str


class Provenance(_ProvenancePart, frozen=True, kw_only=True):
    """The provenance of a simulation."""

    model: ResolvedModel
    runtime: ResolvedRuntime
    dataset: ResolvedDataset
    simulator: ResolvedSimulator
    platform: PlatformFacts
    play: PlaySettings
    #: Of a gang whose communication model has an environment, such as MPI's launcher.
    communication: ResolvedCommunication | None = None

    @property
    def played_model(self) -> PlayedModel:
        """The model and its runtime, of a simulation that does not await an import."""
        runtime, format, digest = self.runtime.name, self.model.format, self.model.digest
        assert runtime is not None and format is not None and digest is not None, "its model is still to be imported"
        return PlayedModel(runtime, format, digest)

    def document(self) -> dict[str, Any]:
        """Return the provenance in its JSON form."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


def provenance_of(text: str) -> Provenance:
    """Return the provenance that a row stores. Raise UnreadableRow if it cannot be read."""
    return decode_document(text, Provenance)


def provenance_of_columns(dataset: str, runtime: str, model: str, digest: str) -> Provenance:
    """Return what the columns of a row tell of a provenance that cannot be read; the other members are empty."""
    return Provenance(
        model=ResolvedModel(name=model, version=None, digest=digest or None, format=None),
        runtime=ResolvedRuntime(name=runtime or None, environment=None),
        dataset=ResolvedDataset(name=dataset, version="", digest=""),
        simulator=ResolvedSimulator(name="", environment=""),
        platform=PlatformFacts(windtunnel="", machine="", sandbox={}),
        play=PlaySettings(tasks={}, params={}, record="", deadline=0, dry_run=False, isolation=None, batch=1),
    )


def play_document(text: str, definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an evaluator gets: how to play, as it is stored, with the definition of the dataset."""
    play: dict[str, Any] = json.loads(text)["play"]
    return play | {"definition": dict(definition)}


def dataset_of(text: str) -> ResolvedDataset:
    """Return the dataset of a stored provenance, of which no other part is read."""
    return decode_document(text, _DatasetAlone).dataset


class _DatasetAlone(msgspec.Struct):
    dataset: ResolvedDataset
