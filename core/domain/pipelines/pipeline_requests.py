"""Requests of pipelines, as they are parsed: steps with the documents that they submit, references in their place."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from common.errors import Invalid
from core.domain.pipelines.references import OutputReference, references_of
from core.domain.pipelines.step_graph import graph_of
from core.domain.submissions.declared_outputs import DeclaredOutput, declared_outputs

#: The output of a submission that is a dataset of all its results and artifacts, without being declared.
RESULTS = "results"


class StepDocument(msgspec.Struct, frozen=True):
    """Members of what a step submits."""

    labels: Mapping[str, str] = {}
    outputs: Mapping[str, object] = {}
    gang: Mapping[str, object] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRequest:
    """A step: what it submits, as the stored form of a `Submission` or a `ComparisonRequest`, with references.

    ``after``: names of steps that it waits for, besides those that it refers to. ``retries``: further attempts after
    one that failed. ``fresh``: it runs although an equal step was complete before.
    """

    name: str
    kind: Literal["submission", "comparison"]
    document: Mapping[str, object]
    after: Sequence[str] = ()
    retries: int = 0
    fresh: bool = False

    @property
    def read(self) -> StepDocument:
        """The members of the document that pipelines read."""
        return msgspec.convert(self.document, StepDocument)

    @property
    def outputs(self) -> dict[str, DeclaredOutput]:
        """The outputs that its submission declares; a comparison has none."""
        return declared_outputs(self.read.outputs)


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineRequest:
    """A pipeline as it is requested. ``fresh``: of all steps."""

    steps: Sequence[StepRequest]
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False


def request_graph(request: PipelineRequest, leaves_files: Callable[[StepRequest], bool]) -> list[list[int]]:
    """Return for each step the numbers of those that it waits for. Raise Invalid for what can never run.

    ``leaves_files``: whether a step may leave files, to which others refer.
    """
    referred = [references_of(step.document) for step in request.steps]
    graph = graph_of(
        [step.name for step in request.steps],
        [
            [*step.after, *(reference.step for reference in references)]
            for step, references in zip(request.steps, referred, strict=True)
        ],
    )
    by_name = {step.name: step for step in request.steps}
    for step, references in zip(request.steps, referred, strict=True):
        for reference in references:
            source = by_name[reference.step]
            if source.kind == "comparison":
                raise Invalid(
                    f"Step {step.name!r} refers to an output {reference.output[:100]!r} of {reference.step!r}, which is"
                    " a comparison and has none: refer to outputs of submissions, and wait for it by `after`."
                )
            try:
                output_name(source.outputs, reference)
            except Invalid as error:
                raise Invalid(f"Step {step.name!r}: {error.detail}") from None
            if reference.output in source.outputs or leaves_files(source):
                continue
            if reference.output == RESULTS and reference.kind == "model":
                raise Invalid(
                    f"Step {step.name!r} refers to the results of {reference.step!r} as a model; they are a dataset,"
                    " which `dataset` can refer to."
                )
            if output_of_file(reference, source.name).file is not None:
                raise Invalid(
                    f"Step {step.name!r} refers to an output {reference.output[:100]!r} of {reference.step!r}, which"
                    " leaves no files: only programs do, on datasets for them (docs/programs.md). A dataset of the"
                    f" results of a submission is its output `{RESULTS}`."
                )
    return graph


def output_of_file(reference: OutputReference, step: str) -> DeclaredOutput:
    """Return what a reference means that no output declares: the file of that name, or all results as a dataset."""
    if reference.kind == "model":
        return DeclaredOutput(file=reference.output, kind="model")
    return DeclaredOutput(file=None if reference.output == RESULTS else reference.output, kind="dataset", name=step)


def output_name(outputs: Mapping[str, DeclaredOutput], reference: OutputReference) -> str | None:
    """Return the declared output that a reference means; None: it means a file of this name.

    `model` is also the only model of a step. Raise Invalid for a `model` that does not say which, and for an output
    that is of the other kind.
    """
    name = reference.output
    if name not in outputs:
        if (name, reference.kind) != ("model", "model"):
            return None
        models = [name for name, output in outputs.items() if output.kind == "model"]
        if len(models) != 1:
            raise Invalid(
                f"step {reference.step!r} makes {len(models)} models: declare an output `model`, or refer to one of"
                f" {', '.join(models) or 'its files'}."
            )
        [name] = models
    if outputs[name].kind != reference.kind:
        raise Invalid(
            f"the output {name!r} of step {reference.step!r} is a {outputs[name].kind}, and `{reference.place}` names"
            f" a {reference.kind}."
        )
    return name
