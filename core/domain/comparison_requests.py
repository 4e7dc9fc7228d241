"""Requests of comparisons of models, as they are parsed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.domain.sequential_test import Design


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonRequest:
    """A comparison as it is requested; the service resolves its names to digests.

    ``models``: names, names with versions, ids or digests. ``reference``: that of these with which the others are
    compared; None: the last. ``runtimes``: of models, by their names; by their formats if left out. ``metric``: None
    for the dataset's score. ``bound``: of differences that count, in the metric's unit. ``play_all``: play the
    scenarios to the end although a verdict holds. The other members are those of a submission.
    """

    models: Sequence[str]
    dataset: str
    reference: str | None = None
    runtimes: Mapping[str, str] = field(default_factory=dict)
    metric: str | None = None
    error_rate: float = 0.05
    design: Design = Design.LIST
    bound: float | None = None
    play_all: bool = False
    scenarios: Mapping[str, Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    sweep: Mapping[str, list[Any]] = field(default_factory=dict)
    repeat: int = 1
    seed: int = 0
    workers: int | None = None
    record: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    placement: Mapping[str, Any] = field(default_factory=dict)
