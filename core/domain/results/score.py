"""Score of a dataset: the metric by which its tasks are compared, and the metric that a comparison judges."""

from collections.abc import Mapping
from dataclasses import dataclass

from common.errors import Invalid
from common.near_names import near_names, suggestion
from core.domain.results.declared_results import DeclaredMetric, DeclaredResults, declared_results
from core.domain.results.outcomes import shorten_error
from core.domain.results.result_columns import TaskResult


@dataclass(frozen=True, slots=True)
class Score:
    """The metric by which tasks that are ``ok`` are compared; without one, only the others are named as worst tasks."""

    metric: str | None
    lower_is_better: bool = False

    @classmethod
    def of(cls, definition: Mapping[str, object]) -> "Score":
        """Return the score of a dataset."""
        return cls.declared_by(declared_results(definition))

    @classmethod
    def declared_by(cls, results: DeclaredResults) -> "Score":
        """Return the score that a dataset declares."""
        name = results.score.metric if results.score is not None else None
        metric = results.metric(name)
        return cls(name, metric is not None and metric.better == "lower")

    @property
    def sign(self) -> float:
        """Factor with which the worst score is the least."""
        return -1.0 if self.lower_is_better else 1.0

    def described(self, result: TaskResult) -> dict[str, object]:
        """Return a task as lists of worst tasks have it."""
        return {
            "task": result.task,
            "status": result.status,
            "score": number_of(result.metrics.get(self.metric)) if self.metric else None,
            "error": shorten_error(result.error) if result.error else result.error,
            "scenario": result.scenario,
        }


def judged_metric(results: DeclaredResults, name: str | None) -> DeclaredMetric | None:
    """Return the declared metric of a name, else that of the score; None for a score without a better direction.

    Raise Invalid for a name that the dataset does not declare.
    """
    if name is None:
        score = results.metric(Score.declared_by(results).metric)
        return score if score is not None and score.has_direction else None
    metric = results.metric(name)
    if metric is None:
        near = near_names(name, [metric.name for metric in results.metrics])
        raise Invalid(
            f"The dataset declares no metric {name[:100]!r}. " + suggestion(near, metrics_with_direction(results)),
            nearest=near,
        )
    return metric


def metrics_with_direction(results: DeclaredResults) -> str:
    """Return the sentence that names the metrics which a comparison can judge."""
    names = [metric.name for metric in results.metrics if metric.has_direction]
    return f"Metrics with a better direction: {', '.join(names)}." if names else "No metric has a better direction."


def others_with_direction(metric: DeclaredMetric, results: DeclaredResults) -> str:
    """Return the same for a problem with a metric that itself has no better direction; nothing for others."""
    return "" if metric.better else f" {metrics_with_direction(results)}"


def number_of(value: object) -> float | None:
    """Return a value of a metric as a number; None if it is not one that fits a float."""
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
