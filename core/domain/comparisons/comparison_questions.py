"""Question of a stored comparison: what its request asked."""

from collections.abc import Mapping

from core.domain.comparisons.comparison_spec import ComparisonSpec
from core.domain.comparisons.running_verdict import Question
from core.domain.results.declared_results import DeclaredMetric


def question_of(
    spec: ComparisonSpec,
    metric: DeclaredMetric,
    scenarios: int,
    groups: Mapping[str, Mapping[str, int]],
) -> Question:
    """Return the question; ``metric``: of the dataset's definition, ``groups``: scenarios by grouping and group."""
    models = spec.models_at_first
    family = spec.family and models > 1
    return Question(
        metric=metric,
        bound=spec.bound,
        design=spec.design,
        error_rate=spec.error_rate / models if family else spec.error_rate,
        scenarios=scenarios,
        groups=groups,
        margin=spec.margin,
        method=spec.method,
        until=spec.until,
        family=_family(spec.error_rate, models, divided=family) if models > 1 else None,
    )


def _family(error_rate: float, models: int, *, divided: bool) -> str:
    """Return what the error rates of several models amount to."""
    if divided:
        return (
            f"The error rate of {100 * error_rate:g} % is that of all {models} models together, each of which has"
            f" {100 * error_rate / models:.3g} %."
        )
    return (
        f"Each of {models} models has an error rate of {100 * error_rate:g} %: at least one of their verdicts is wrong"
        f" with a probability of {min(100, 100 * models * error_rate):.3g} % at most."
    )
