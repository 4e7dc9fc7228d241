"""Step checks: what can never run is refused before the first step runs, as far as it is known then."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from common.errors import Invalid, PlatformError, StoreUnavailable
from core.domain.access.scopes import Caller
from core.domain.comparisons.comparison_requests import ComparisonRequest
from core.domain.pipelines.pipeline_requests import StepRequest
from core.domain.pipelines.pipeline_states import LABEL, STEP_LABEL
from core.domain.pipelines.references import references_of, replace_references
from core.domain.submissions.submission import Submission
from core.services.comparisons.comparisons import Comparisons
from core.services.submissions.resolving import UNKNOWN_MODEL, Resolver


class _NamedInputs(msgspec.Struct):
    """The models and the dataset that a document names; None where it refers to an output."""

    model: str | None = None
    models: list[str | None] = []
    dataset: str | None = None
    gang: dict[str, object] | None = None

    @property
    def known(self) -> list[str]:
        """The models that are named."""
        return [name for name in (self.model, *self.models) if name is not None]


class StepChecks:
    """Checks of the steps of a pipeline that is requested."""

    def __init__(self, resolver: Resolver, comparisons: Comparisons) -> None:
        self._resolver = resolver
        self._comparisons = comparisons

    def leaves_files(self, caller: Caller, step: StepRequest) -> bool:
        """Return whether a step may leave files: programs do, and only datasets of programs have some."""
        dataset = _named_inputs(step).dataset
        if step.kind == "comparison":
            return False
        with _refusal_of(step):
            return dataset is None or self._resolver.is_of_gangs(caller, dataset)

    def check(self, caller: Caller, step: StepRequest) -> None:
        """Raise Invalid, or what a submission would raise, for a step that can never run."""
        if not {LABEL, STEP_LABEL}.isdisjoint(step.read.labels):
            raise Invalid(f"Step {step.name!r}: the labels `{LABEL}` and `{STEP_LABEL}` are set by the platform.")
        with _refusal_of(step):
            if references_of(step.document):
                self._check_known_part(caller, step)
            elif step.kind == "comparison":
                self._comparisons.check(caller, msgspec.convert(step.document, ComparisonRequest))
            else:
                self._resolver.resolve(caller, msgspec.convert(step.document, Submission))

    def _check_known_part(self, caller: Caller, step: StepRequest) -> None:
        """Check a step that refers to outputs by what it names."""
        named = _named_inputs(step)
        document = dict(step.document)
        if named.dataset is None:
            for model in named.known:
                self._resolver.require_model(caller, model)
        elif step.kind == "comparison":
            referred = [
                reference.output_of_step for reference in references_of(step.document) if reference.place == "models"
            ]
            if twice := [output for output in referred if referred.count(output) > 1]:
                raise Invalid(f"`models` has {twice[0]} twice; each can be compared once.")
            document["models"] = named.known
            document["reference"] = None
            self._comparisons.check_known_models(caller, msgspec.convert(document, ComparisonRequest))
        elif named.gang is not None or not self._resolver.is_of_gangs(
            caller, named.dataset
        ):  # else a case has the gang
            document["model"] = None
            submission = msgspec.convert(document, Submission)
            self._resolver.resolve(caller, replace(submission, model_reference=UNKNOWN_MODEL))


@contextmanager
def _refusal_of(step: StepRequest) -> Iterator[None]:
    """Name the step in an error that refuses it."""
    try:
        yield
    except StoreUnavailable:
        raise
    except PlatformError as error:
        error.detail = f"Step {step.name!r}: {error.detail}"
        raise


def _named_inputs(step: StepRequest) -> _NamedInputs:
    return msgspec.convert(replace_references(step.document, lambda _: None), _NamedInputs)
