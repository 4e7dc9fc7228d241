"""Spec of a comparison: its request as a row stores it, without its models, and what the platform decided of it."""

from collections.abc import Mapping
from typing import Self

import msgspec

from core.domain.comparisons.claims import Claim, Design, Method
from core.domain.comparisons.comparison_requests import ComparisonRequest
from core.domain.submissions.stored_documents import decode_document


class ComparisonSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A stored comparison. The order of the members is that of its JSON.

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

    @classmethod
    def of(cls, request: ComparisonRequest, *, margin: float, method: Method, models: int) -> Self:
        """Return the spec of a request; ``models``: how many are compared with the reference."""
        members = {name: getattr(request, name) for name in cls.__struct_fields__ if hasattr(request, name)}
        margin_from = "request" if request.margin is not None else "default"
        decided = {"margin": margin, "method": method, "margin_from": margin_from, "models_at_first": models}
        return cls(**members | decided)


def comparison_spec_of(text: str) -> ComparisonSpec:
    """Return the spec that a row stores. Raise Corrupt if it cannot be read."""
    return decode_document(text, ComparisonSpec)
