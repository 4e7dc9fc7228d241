"""Spec of a comparison: its request as a row stores it, without its models, and what the platform decided of it."""

from collections.abc import Mapping
from typing import Self

import msgspec

from core.domain.comparisons.claims import Claim, Design, Method
from core.domain.comparisons.comparison_requests import ComparisonRequest
from core.domain.submissions.stored_documents import decode_document


class ComparisonSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A stored comparison. The order of the members is that of its JSON.

    Members with a default, but for ``until``, are absent of comparisons that began before claims were kept; those end
    by the rules of then. ``margin_from``: `request` or `default`. ``models_at_first``: those that were compared with
    the reference when it began. Numbers are as the request has them.
    """

    dataset: str
    metric: str | None
    error_rate: int | float
    design: Design
    method: Method | None = None
    bound: int | float | None
    margin: int | float = 0.0
    until: Claim | None = None
    family: bool = False
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
    margin_from: str = "default"
    models_at_first: int = 1

    @classmethod
    def of(cls, request: ComparisonRequest, *, margin: float, method: Method, models: int) -> Self:
        """Return the spec of a request; ``models``: how many are compared with the reference."""
        members = {name: getattr(request, name) for name in cls.__struct_fields__ if hasattr(request, name)}
        margin_from = "request" if request.margin is not None else "default"
        decided = {"margin": margin, "method": method, "margin_from": margin_from, "models_at_first": models}
        return cls(**members | decided)

    @property
    def former(self) -> bool:
        """Whether the comparison began before claims were kept."""
        return self.method is None

    @property
    def subject(self) -> Design:
        """The design; what was called `list` before claims were kept is `exact`."""
        return Design.EXACT if self.former and self.design is Design.LIST else self.design


def comparison_spec_of(text: str) -> ComparisonSpec:
    """Return the spec that a row stores. Raise Corrupt if it cannot be read."""
    return decode_document(text, ComparisonSpec)
