"""Spec of a comparison: its request as a row stores it, without its models, and what the platform decided of it."""

from collections.abc import Mapping
from typing import Self

import msgspec

from core.domain.comparisons.claims import Claim, Design, Method
from core.domain.comparisons.comparison_requests import ComparisonRequest
from core.domain.comparisons.running_verdict import Question
from core.domain.results.declared_results import DeclaredMetric
from core.domain.submissions.declared_members import WholeOrAuto
from core.domain.submissions.stored_documents import decode_document


class ComparisonSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored comparison. The order of the members is that of its JSON, without a member that has its default.

    ``margin_from``: `request` or `default`. ``models_at_first``: those that were compared with the reference when it
    began. Numbers are as the request has them.
    """

    dataset: str
    metric: str | None
    error_rate: int | float
    design: Design
    method: Method
    bound: int | float | None
    margin: int | float
    until: Claim | None
    family: bool
    play_all: bool
    scenarios: Mapping[str, object] | None
    params: Mapping[str, object]
    sweep: Mapping[str, list[object]]
    repeat: int
    seed: int
    workers: int | None
    record: str | None
    labels: Mapping[str, str]
    placement: Mapping[str, object]
    margin_from: str
    models_at_first: int
    worlds: WholeOrAuto = "auto"
    trusted: bool = False

    @classmethod
    def of(cls, request: ComparisonRequest, *, margin: float, method: Method, models: int) -> Self:
        """Return the spec of a request; ``models``: how many are compared with the reference."""
        members = {name: getattr(request, name) for name in cls.__struct_fields__ if hasattr(request, name)}
        margin_from = "request" if request.margin is not None else "default"
        decided = {"margin": margin, "method": method, "margin_from": margin_from, "models_at_first": models}
        return cls(**members | decided)

    def question(self, metric: DeclaredMetric, scenarios: int, groups: Mapping[str, Mapping[str, int]]) -> Question:
        """Return what it asks; ``metric``: of the dataset's definition, ``groups``: scenarios by grouping and group."""
        models = self.models_at_first
        divided = self.family and models > 1
        return Question(
            metric=metric,
            bound=self.bound,
            design=self.design,
            error_rate=self.error_rate / models if divided else self.error_rate,
            scenarios=scenarios,
            groups=groups,
            margin=self.margin,
            method=self.method,
            until=self.until,
            family=_family(self.error_rate, models, divided=divided) if models > 1 else None,
        )


def _family(error_rate: float, models: int, *, divided: bool) -> str:
    """Return what the error rates of several models amount to."""
    if divided:
        return (
            f"The error rate of {100 * error_rate:g} % is that of all {models} models together, each of which has"
            f" {100 * error_rate / models:.3g} %."
        )
    return (
        f"Each of {models} models has an error rate of {100 * error_rate:g} %: at least one of their verdicts is wrong"
        f" with a probability of {min(100, 100 * models * error_rate):.3g} % at most."
    )


def comparison_spec_of(text: str) -> ComparisonSpec:
    """Return the spec that a row stores. Raise UnreadableRow if it cannot be read."""
    return decode_document(text, ComparisonSpec)
