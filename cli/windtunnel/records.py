"""Records of the API: simulations, models, datasets, results and events as typed, immutable values."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from windtunnel.answers import Answer as Answer
from windtunnel.answers import answer_lines
from windtunnel.displays import table_html
from windtunnel.figures import number, percent
from windtunnel.record import Record as Record
from windtunnel.record import read as read

#: States that a simulation does not leave.
FINAL = frozenset({"succeeded", "failed", "errored", "cancelled"})
#: The same of a comparison of models.
FINAL_COMPARISON = frozenset({"finished", "failed", "cancelled"})
#: Metrics of a simulation that a notebook lists; the others are in ``metrics``.
MOST_METRICS = 12


class Statistics(Record, frozen=True, kw_only=True):
    """Statistics of a metric over tasks, in the metric's unit.

    ``low`` and ``high`` are the ends of the 95 % interval of the mean. ``mean_penalised`` is over all tasks, with the
    metric's worst value for those that are not `ok`, and ``low_penalised`` to ``high_penalised`` its interval; the
    others are over the tasks that are `ok`. ``never``: tasks without a value because what is measured never happened.
    """

    count: int = 0
    never: int = 0
    mean: float | None = None
    mean_ok: float | None = None
    mean_penalised: float | None = None
    low: float | None = None
    high: float | None = None
    low_penalised: float | None = None
    high_penalised: float | None = None
    std: float | None = None
    min: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None


class ModelRef(Record, frozen=True, kw_only=True):
    """A model as a simulation refers to it."""

    name: str
    digest: str | None = None
    version: int | None = None
    format: str | None = None


class DatasetRef(Record, frozen=True, kw_only=True):
    """A dataset's version as a simulation refers to it."""

    name: str
    version: str | None = None
    digest: str | None = None

    @property
    def reference(self) -> str:
        """``name@version``, by which the platform finds this version."""
        return f"{self.name}@{self.version}"


class RuntimeRef(Record, frozen=True, kw_only=True):
    """A runtime as a simulation refers to it; without a name until a model that is imported has been recognised."""

    name: str | None = None


class Tasks(Record, frozen=True, kw_only=True):
    """Numbers of tasks: all, with a result, and with a result that is not `ok`."""

    total: int
    done: int
    failed: int


class Score(Record, frozen=True, kw_only=True):
    """The metric that is the dataset's score, and its mean so far over the tasks that are `ok`."""

    metric: str
    mean: float | None = None
    series: list[float | None] = []


class RunningTask(Record, frozen=True, kw_only=True):
    """The task that a gang's program is at work on. ``fraction``: what is done of it, from 0 to 1."""

    task: int
    fraction: float


class Simulation(Record, frozen=True, kw_only=True):
    """A simulation: a model on the scenarios of a dataset. Times are UTC, ``eta`` is in seconds.

    ``trusted``: its model runs in the evaluator's process, where it can change its own score. ``outputs``: what its
    declared outputs became, by their names, once it has ended.
    """

    id: str
    state: str
    model: ModelRef
    dataset: DatasetRef
    runtime: RuntimeRef
    tasks: Tasks
    metrics: dict[str, Statistics] = {}
    score: Score | None = None
    answer: Answer | None = None
    results_digest: str | None = None
    reason: str | None = None
    position: int | None = None
    eta: float | None = None
    running: RunningTask | None = None
    labels: dict[str, str] = {}
    workers: int = 0
    executor: str | None = None
    attempt: int = 1
    retry_of: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    trusted: bool = False
    outputs: dict[str, dict[str, object]] = {}
    spec: dict[str, Any] = {}

    def __repr__(self) -> str:
        found = self.answer.score if self.answer else None
        score = f", {found.metric}={found.mean:.4g}" if found and found.mean is not None else ""
        tasks = f"{self.tasks.done} of {self.tasks.total} tasks, {self.tasks.failed} not ok"
        trusted = ", trusted" if self.trusted else ""
        run = f"{self.state}: {self.model.name} on {self.dataset.name}"
        return f"Simulation({self.id!r}, {run}, {tasks}{score}{trusted})"

    def _repr_html_(self) -> str:
        tasks = self.tasks
        title = (
            f"{self.model.name} on {self.dataset.name}: {self.state},"
            f" {tasks.done} of {tasks.total} tasks ({percent(tasks.done, tasks.total)}), {tasks.failed} not ok"
        )
        if self.trusted:
            title += ", trusted"
        if self.answer is not None:
            title = ". ".join([title, *answer_lines(self.answer)])
        rows = [
            (
                name,
                number(metric.mean),
                f"{number(metric.low)} to {number(metric.high)}",
                number(metric.min),
                number(metric.max),
            )
            for name, metric in list(self.metrics.items())[:MOST_METRICS]
        ]
        return table_html(title, ("metric", "mean of ok tasks", "95 % interval", "min", "max"), rows)

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in FINAL

    @property
    def ok(self) -> bool:
        """Whether it has succeeded with a result that is `ok` for every task."""
        return self.state == "succeeded" and self.tasks.failed == 0


class Rank(Record, frozen=True, kw_only=True):
    """Measures of a gang's rank: seconds of processor time, seconds that it waited in MPI, and bytes that it sent.

    ``all_reduce``: seconds of those in which it waited that were in MPI_Allreduce. None: not measured.
    """

    host: str
    computing: float | None = None
    waiting: float | None = None
    sent: int | None = None
    all_reduce: float | None = None


class Result(Record, frozen=True, kw_only=True):
    """Result of one task. ``status`` is `ok`, `failed`, `crashed`, `timed_out` or `invalid`.

    ``timing``: seconds; also `worlds`, the most scenarios that one request for actions was for, and `kernel`, how their
    actions were computed: by one call of the model (`rows`), or by a call each (`one`).
    """

    task: int
    status: str
    scenario: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    error: str | None = None
    artifacts: list[dict[str, Any]] = []
    timing: dict[str, Any] = {}
    score: float | None = None

    @property
    def ranks(self) -> Sequence[Rank]:
        """The ranks of a gang's program, in their order; empty for a model, and where pods ran the gang."""
        return [read(Rank, rank) for rank in self.timing.get("ranks") or ()]


class Event(Record, frozen=True, kw_only=True):
    """An event of a simulation or a comparison; ``raw`` has the members of its type."""

    number: int
    type: str
    at: datetime | None = None

    def __getitem__(self, name: str) -> Any:
        return self.raw[name]


class Model(Record, frozen=True, kw_only=True):
    """A model binary, addressed by its content; ``size`` in bytes."""

    id: str
    name: str
    version: int
    digest: str
    format: str
    size: int
    filename: str | None = None
    runtime: str | None = None
    baseline: bool = False
    created_at: datetime | None = None
    tags: list[str] = []


class Check(Record, frozen=True, kw_only=True):
    """Whether a model loads and fits a dataset, after a few real steps; ``memory`` in bytes."""

    fits: bool
    dataset: str
    reason: str | None = None
    runtime: str | None = None
    format: str | None = None
    model: dict[str, Any] | None = None
    load_seconds: float | None = None
    act_seconds: float | None = None
    slowest_act_seconds: float | None = None
    memory: int | None = None


class Metric(Record, frozen=True, kw_only=True):
    """A metric as its dataset declares it; ``better`` is `higher`, `lower` or None."""

    name: str
    title: str = ""
    unit: str = ""
    formula: str = ""
    better: str | None = None
    worst: float | None = None
    low: float | None = None
    high: float | None = None


class Dataset(Record, frozen=True, kw_only=True):
    """A version of a dataset; ``tasks`` is the number of its scenarios, None if it is unlimited or has none."""

    name: str
    state: str
    version: str | None = None
    digest: str | None = None
    title: str = ""
    description: str = ""
    simulator: str | None = None
    tasks: int | None = None
    registered: bool = False
    tags: list[str] = []
    metrics: list[Metric] = []
    params: dict[str, Any] = {}
    interface: dict[str, Any] | None = None
    score: dict[str, Any] | None = None
    reason: str | None = None
    next_step: str | None = None

    def _repr_html_(self) -> str:
        return table_html(
            f"{self.name}@{self.version}: {self.title}",
            ("metric", "unit", "better", "formula"),
            (
                (metric.title or metric.name, metric.unit, metric.better or "", metric.formula)
                for metric in self.metrics
            ),
        )

    @property
    def score_metric(self) -> str | None:
        """Name of the metric that is the score; None for a dataset without a score."""
        return (self.score or {}).get("metric")

    @property
    def score_first(self) -> list[Metric]:
        """The metrics, the score before the others, which keep their order."""
        return sorted(self.metrics, key=lambda metric: metric.name != self.score_metric)


class Runtime(Record, frozen=True, kw_only=True):
    """A runtime and the formats of models that it loads."""

    name: str
    title: str = ""
    description: str = ""
    formats: list[dict[str, Any]] = []

    @property
    def suffixes(self) -> list[str]:
        """Suffixes that files of its formats may have, those of archives too."""
        return sorted({suffix for format in self.formats for suffix in format.get("accepted_suffixes", [])})


class Executor(Record, frozen=True, kw_only=True):
    """A machine or cluster that simulations run on; numbers of workers.

    ``drain``: since when it is given no simulations, and why; None: it is not drained.
    """

    name: str
    kind: str
    workers: int
    in_use: int
    healthy: bool | None = None
    reason: str | None = None
    drain: dict[str, Any] | None = None


class Verdict(Record, frozen=True, kw_only=True):
    """Verdict of a comparison: ``decision`` is `equivalent`, `better`, `worse`, `not_worse` or `undecided`, the first
    of ``claims`` that holds; the interval is of the mean difference, positive where the model is better. ``count``
    scenarios of ``pairs`` were tested; ``margin``: the difference that does not matter."""

    decision: str
    sentence: str
    metric: str = ""
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    count: int = 0
    pairs: int = 0
    error_rate: float | None = None
    smallest: float | None = None
    message: str | None = None
    claims: dict[str, bool] = {}
    refuted: dict[str, bool] = {}
    margin: float = 0.0
    smallest_margin: float | None = None
    biased: bool = False


class BatchSimulation(Record, frozen=True, kw_only=True):
    """A simulation of a comparison: of one model, on one batch of scenarios."""

    id: str
    batch: int
    state: str | None = None


class ComparedModel(Record, frozen=True, kw_only=True):
    """A model of a comparison, with its verdict so far."""

    name: str
    state: str
    verdict: Verdict | None = None
    reason: str | None = None
    played: int = 0
    digest: str | None = None
    simulations: list[BatchSimulation] = []
    groups: dict[str, Any] = {}


class Reference(Record, frozen=True, kw_only=True):
    """The model with which each of the others is compared."""

    name: str
    digest: str | None = None


class ModelComparison(Record, frozen=True, kw_only=True):
    """A comparison of models on the same scenarios, which stops when its verdicts hold."""

    id: str
    state: str
    reference: Reference
    models: list[ComparedModel]
    dataset: DatasetRef
    scenarios: int = 0
    reason: str | None = None
    metric: str | None = None
    error_rate: float | None = None
    created_at: datetime | None = None
    ended_at: datetime | None = None
    trusted: bool = False
    notice: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in FINAL_COMPARISON
