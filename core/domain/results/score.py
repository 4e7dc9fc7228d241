"""Score of a dataset: the metric by which its tasks are compared, and the metric that a comparison judges."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.errors import Invalid
from common.near_names import near_names, suggestion
from core.domain.results.outcomes import SHOWN
from core.domain.results.result_columns import TaskResult


@dataclass(frozen=True, slots=True)
class Score:
    """The metric by which tasks that are ``ok`` are compared; without one, only the others are named as worst tasks."""

    metric: str | None
    lower_is_better: bool = False

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> "Score":
        """Return the score of a dataset."""
        name = (definition.get("score") or {}).get("metric")
        metric: Mapping[str, Any] = next((metric for metric in definition["metrics"] if metric["name"] == name), {})
        return cls(name, metric.get("better") == "lower")

    @property
    def sign(self) -> float:
        """Factor with which the worst score is the least."""
        return -1.0 if self.lower_is_better else 1.0

    def described(self, result: TaskResult) -> dict[str, Any]:
        """Return a task as lists of worst tasks have it."""
        return {
            "task": result.task,
            "status": result.status,
            "score": number_of(result.metrics.get(self.metric)) if self.metric else None,
            "error": result.error[:SHOWN] if result.error else result.error,
            "scenario": result.scenario,
        }


def judged_metric(definition: Mapping[str, Any], name: str | None) -> Mapping[str, Any] | None:
    """Return the declared metric of a name, else that of the score; None for a score without a better direction.

    Raise Invalid for a name that the dataset does not declare.
    """
    declared: dict[str, Mapping[str, Any]] = {metric["name"]: metric for metric in definition["metrics"]}
    if name is None:
        score = declared.get(Score.of(definition).metric or "")
        return score if score is not None and score.get("better") in ("higher", "lower") else None
    if name not in declared:
        near = near_names(name, declared)
        raise Invalid(
            f"The dataset declares no metric {name[:100]!r}. " + suggestion(near, metrics_with_direction(definition)),
            nearest=near,
        )
    return declared[name]


def metrics_with_direction(definition: Mapping[str, Any]) -> str:
    """Return the sentence that names the metrics which a comparison can judge."""
    names = [metric["name"] for metric in definition["metrics"] if metric.get("better") in ("higher", "lower")]
    return f"Metrics with a better direction: {', '.join(names)}." if names else "No metric has a better direction."


def others_with_direction(metric: Mapping[str, Any], definition: Mapping[str, Any]) -> str:
    """Return the same for a problem with a metric that itself has no better direction; nothing for others."""
    return "" if metric.get("better") else f" {metrics_with_direction(definition)}"


def number_of(value: Any) -> float | None:
    """Return a value of a metric as a number; None if it is not one that fits a float."""
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
