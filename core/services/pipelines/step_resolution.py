"""Resolution of steps: references become the outputs of other steps, and a document the digest of all that it means."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from common.errors import Invalid, UnknownSimulation
from core.domain.access.scopes import Caller
from core.domain.comparisons.comparison_requests import ComparisonRequest
from core.domain.pipelines.pipeline_requests import StepDocument, output_name, output_of_file
from core.domain.pipelines.pipeline_states import LABEL, STEP_LABEL
from core.domain.pipelines.references import OutputReference, replace_references
from core.domain.submissions.declared_outputs import MadeOutput, declared_outputs
from core.domain.submissions.provenance import Provenance
from core.domain.submissions.stored_documents import decode_document, load_document
from core.domain.submissions.submission import Submission
from core.services.comparisons.comparisons import Comparisons
from core.services.simulations.simulation_outputs import SimulationOutputs
from core.services.submissions.resolving import Resolver
from core.store.pipelines import PipelineStepRow

#: Members of a submission that its provenance does not have and that decide what comes of it.
_DECIDING_MEMBERS = ("gang", "outputs", "timeout", "max_failures")
#: Members of a request of a comparison on which no verdict depends, and those that are resolved.
_IDLE_MEMBERS = ("labels", "workers", "placement", "worlds", "models", "reference", "dataset", "runtimes")


class OutputPending(Exception):
    """A file that a step refers to is being registered as a dataset; the next attempt may find it."""


@dataclass(frozen=True, slots=True)
class ResolvedStep:
    """The submission or comparison of a step, and the ``digest`` that equal steps have; None: nothing equals it."""

    content: Submission | ComparisonRequest
    digest: str | None


class StepResolution:
    """Resolves steps whose steps before them are complete."""

    def __init__(self, resolver: Resolver, comparisons: Comparisons, outputs: SimulationOutputs) -> None:
        self._resolver = resolver
        self._comparisons = comparisons
        self._outputs = outputs

    def resolve(self, caller: Caller, step: PipelineStepRow, others: Mapping[str, PipelineStepRow]) -> ResolvedStep:
        """Resolve a step; ``others``: the steps by their names.

        Raise a PlatformError if it cannot be submitted, OutputPending if that is not known yet.
        """
        read = decode_document(step.document, StepDocument)
        document = replace_references(
            load_document(step.document),
            lambda reference: self._output(caller, others[reference.step], reference, gang=read.gang is not None),
        )
        document["labels"] = {**read.labels, LABEL: step.pipeline_id, STEP_LABEL: step.name}
        if step.kind == "comparison":
            request = msgspec.convert(document, ComparisonRequest)
            return ResolvedStep(request, self._digest_of_comparison(caller, request))
        submission = msgspec.convert(document, Submission)
        return ResolvedStep(submission, self._digest_of_submission(caller, submission))

    def has_outputs(self, caller: Caller, step: PipelineStepRow) -> bool:
        """Return whether the models and datasets that a step made are still there."""
        return all(self._is_there(caller, output) for output in step.made.values())

    def _is_there(self, caller: Caller, output: MadeOutput) -> bool:
        return output.reference is None or self._resolver.is_there(caller, output.kind, output.reference)

    def _output(self, caller: Caller, source: PipelineStepRow, reference: OutputReference, *, gang: bool) -> str:
        """Return the reference to the model or the dataset that a reference means; ``gang``: for a gang's step."""
        declared = decode_document(source.document, StepDocument).outputs
        name = output_name(declared_outputs(declared), reference)
        made = source.made
        if name is None:
            if source.run_id is None or source.run_state is None:
                raise Invalid(f"the simulation of step {source.name!r}, which left the files, was deleted")
            file = output_of_file(reference, source.name)
            try:
                found = self._outputs.make(caller, source.run_id, {reference.output: file}, gang=gang)
            except UnknownSimulation:
                raise Invalid(f"the simulation of step {source.name!r}, which left the files, was deleted") from None
            if found is None:
                raise OutputPending
            name, made = reference.output, found
        output = made[name]
        if output.reference is None:
            declare = " `outputs` of that step may declare it, with a `format`." if output.kind == "model" else ""
            raise Invalid(f"step {source.name!r} has no output {name!r}: {output.error}{declare}")
        if not self._is_there(caller, output):
            raise Invalid(
                f"the {output.kind} {output.name!r} that step {source.name!r} made was deleted; run the pipeline again"
                f" `from` that step"
            )
        return output.reference

    def _digest_of_submission(self, caller: Caller, submission: Submission) -> str | None:
        provenance = self._resolver.resolve(caller, submission).provenance
        if provenance.model.digest is None:  # a model that is imported first
            return None
        document = msgspec.to_builtins(submission)
        return _digest({"provenance": _content(provenance), **{name: document[name] for name in _DECIDING_MEMBERS}})

    def _digest_of_comparison(self, caller: Caller, request: ComparisonRequest) -> str:
        models = [_content(provenance) for provenance in self._comparisons.check(caller, request)]
        reference = request.models.index(request.reference) if request.reference else len(models) - 1
        document = msgspec.to_builtins(request)
        kept = {name: value for name, value in document.items() if name not in _IDLE_MEMBERS}
        return _digest({"models": models, "reference": reference, **kept})


def _content(provenance: Provenance) -> dict[str, object]:
    """Return of a provenance what results depend on: contents by their digests, without their names and origins.

    The lock of a model's packages is left out, with the environment that it decides: it is resolved at the model's
    first simulation, and the digest of the model stands for it.
    """
    document = provenance.document()
    model, dataset = provenance.model, provenance.dataset
    document["model"] = {"digest": model.digest, "format": model.format}
    document["dataset"] = {"digest": dataset.digest, "extends": msgspec.to_builtins(dataset.extends)}
    if model.dependencies is not None:
        document["runtime"] = {"name": provenance.runtime.name}
    return document


def _digest(content: Mapping[str, object]) -> str:
    return f"sha256:{hashlib.sha256(msgspec.json.encode(content, order='deterministic')).hexdigest()}"
