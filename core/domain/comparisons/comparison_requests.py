"""Requests of comparisons of models, as they are parsed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core.domain.comparisons.claims import Claim, Design, Method
from core.domain.submissions.declared_members import WholeOrAuto


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonRequest:
    """A comparison as it is requested; the service resolves its names to digests.

    ``models``: names, names with versions, ids or digests. ``reference``: that of these with which the others are
    compared; None: the last. ``runtimes``: of models, by their names; by their formats if left out. ``metric``: None
    for the dataset's score. ``bound``: of differences that count, and ``margin``, within which models are equivalent:
    in the metric's unit, None for the declared range and for the default. ``until``: the claim at which it ends, shown
    or refuted. ``family``: the error rate is that of all models together. ``method``: None for that of the design.
    ``play_all``: play the scenarios to the end although a verdict holds. The other members are those of a submission.
    """

    models: Sequence[str]
    dataset: str
    reference: str | None = None
    runtimes: Mapping[str, str] = field(default_factory=dict)
    metric: str | None = None
    error_rate: float = 0.05
    design: Design = Design.POPULATION
    method: Method | None = None
    bound: float | None = None
    margin: float | None = None
    until: Claim | None = None
    family: bool = False
    play_all: bool = False
    scenarios: Mapping[str, object] | None = None
    params: Mapping[str, object] = field(default_factory=dict)
    sweep: Mapping[str, list[object]] = field(default_factory=dict)
    repeat: int = 1
    seed: int = 0
    workers: int | None = None
    record: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    placement: Mapping[str, object] = field(default_factory=dict)
    worlds: WholeOrAuto = "auto"
    trusted: bool = False
