"""Submission: a simulation as it is requested, whose names are not resolved yet."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """A submission as parsed; the service resolves its names to digests."""

    dataset: str
    runtime: str | None = None
    model: str | None = None
    scenarios: Mapping[str, object] | None = None
    params: Mapping[str, object] = field(default_factory=dict)
    sweep: Mapping[str, list[object]] = field(default_factory=dict)
    repeat: int = 1
    workers: int | None = None
    seed: int = 0
    record: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None  # seconds from the first lease
    max_failures: int | None = None
    dry_run: bool = False
    placement: Mapping[str, object] = field(default_factory=dict)  # launches.Placement
    gang: Mapping[str, object] | None = None  # launches.Gang
    model_reference: str | None = None  # model_references.Reference
    connection: str | None = None  # by which the reference is read
    format: str | None = None  # of the model that the reference names
    log_to_run: bool = False  # log the results to the MLflow run of the model
    model_seeds: str | None = None  # tasks.BY_SCENARIO: of the comparisons whose models' seeds follow from scenarios
