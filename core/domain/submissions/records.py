"""Records that services accept and return: models, simulations, events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from core.domain.scheduling.states import FINAL, State
from core.domain.submissions.provenance import Provenance


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """An immutable, content-addressed binary. ``size`` in bytes."""

    id: str
    name: str
    version: int
    digest: str
    format: str
    size: int
    filename: str | None
    runtime: str | None
    created_at: datetime
    baseline: bool = False
    #: What it declares to need: file, requirements and Python version; None: nothing.
    dependencies: Mapping[str, object] | None = None
    #: The reference that it was imported by and what that resolved to; None: its bytes were sent.
    source: Mapping[str, object] | None = None
    #: Tags that refer to this version at the moment.
    tags: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRef:
    name: str
    digest: str | None
    version: int | None = None
    format: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeRef:
    name: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetRef:
    name: str
    version: str
    digest: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Tasks:
    """Numbers of tasks: in total, with a result, and with a result other than ``ok``."""

    total: int
    done: int = 0
    failed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """A simulation with its progress. ``eta``: seconds to its end; ``position``: in the queue, from 1.

    ``results_digest``: of the results without their timing; None until the end. ``score``: metric, mean and series
    (results/score_series.py); None: no score so far. ``submitted_by``: the address it came from; None:
    not recorded. ``trusted``: its model runs in the evaluator's process, where it can change its own score.
    """

    id: str
    state: State
    attempt: int
    model: ModelRef
    runtime: RuntimeRef
    dataset: DatasetRef
    tasks: Tasks
    metrics: Mapping[str, Mapping[str, float | int | None]]
    approximate: bool  # while it runs: metrics of the results so far, in order of arrival
    reason: str | None
    position: int | None
    next_attempt_at: datetime | None
    eta: float | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    labels: Mapping[str, str]
    spec: Mapping[str, object]
    provenance: Provenance
    provenance_document: Mapping[str, object]  # as it is stored, with what a later version may have added
    workers: int
    executor: str | None = None
    retry_of: str | None = None
    submitted_by: str | None = None
    score: Mapping[str, object] | None = None
    answer: Mapping[str, object] | None = None  # results/simulation_answer.py; None without a result
    running: Mapping[str, object] | None = None  # the task at work and its fraction, of a gang that tells it
    results_digest: str | None = None
    dry_run: bool = False
    trusted: bool = False
    outputs: Mapping[str, object] = field(default_factory=dict)  # declared_outputs.MadeOutput, by name; empty: none yet

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.state in FINAL


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """An event of a simulation; ``seq`` counts from 1 within the simulation."""

    simulation_id: str
    seq: int
    type: str
    body: Mapping[str, object]
    at: datetime
