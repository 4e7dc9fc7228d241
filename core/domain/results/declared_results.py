"""Declared results: what a dataset's definition says of the results of its tasks: metrics, score and failures.

Members for evaluators are in runtimes/harness/dataset_definition.py, those for submissions in datasets/catalogue.
"""

from collections.abc import Mapping, Sequence

import msgspec


class DeclaredMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric. ``better``: `higher` or `lower`, if either is. ``low`` and ``high``: its range, if it has one.

    ``worst``: the value of a task that is not ``ok``; None: such a task has none.
    """

    name: str
    title: str | None = None
    unit: str | None = None
    better: str | None = None
    low: int | float | None = None
    high: int | float | None = None
    worst: int | float | None = None

    @property
    def has_direction(self) -> bool:
        """Whether higher or lower is better."""
        return self.better in ("higher", "lower")


class DeclaredScore(msgspec.Struct, frozen=True):
    """A score, by the metric that it is the mean of."""

    metric: str


class DeclaredFailure(msgspec.Struct, frozen=True, rename={"outcomes": "in"}):
    """The values of a metric, its outcomes, with which a task that is ``ok`` counts as a failure."""

    metric: str
    outcomes: tuple[str | int | float | bool, ...]


class DeclaredResults(msgspec.Struct, frozen=True, kw_only=True):
    """Members of a definition that are about results. ``dt``: seconds of a step, if the simulator has steps."""

    metrics: tuple[DeclaredMetric, ...] = ()
    score: DeclaredScore | None = None
    failure: DeclaredFailure | None = None
    group_by: tuple[str, ...] = ()
    dt: int | float | None = None

    def metric(self, name: str | None) -> DeclaredMetric | None:
        """Return the metric of a name; None if it is not declared."""
        return next((metric for metric in self.metrics if metric.name == name), None)

    @property
    def worst_values(self) -> dict[str, int | float | None]:
        """The worst value of each metric, by name."""
        return {metric.name: metric.worst for metric in self.metrics}


def declared_results(definition: Mapping[str, object]) -> DeclaredResults:
    """Return what a definition says of results."""
    return msgspec.convert(definition, DeclaredResults)


def declared_metrics(metrics: Sequence[Mapping[str, object]]) -> tuple[DeclaredMetric, ...]:
    """Return the metrics of a definition."""
    return msgspec.convert(metrics, tuple[DeclaredMetric, ...])
