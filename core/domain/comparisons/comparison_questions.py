"""Question of a stored comparison: what its request asked, also if an earlier version has stored it."""

from collections.abc import Mapping
from typing import Any

from core.domain.comparisons.claims import Claim, Design, Method
from core.domain.comparisons.running_verdict import Question


def is_former(spec: Mapping[str, Any]) -> bool:
    """Return whether a comparison began before claims were kept; it ends by the rules of then."""
    return "method" not in spec


def design_of(spec: Mapping[str, Any]) -> Design:
    """Return the design; what was called `list` before claims were kept is `exact`."""
    design = Design(spec["design"])
    return Design.EXACT if is_former(spec) and design is Design.LIST else design


def question_of(
    spec: Mapping[str, Any], metric: Mapping[str, Any], scenarios: int, groups: Mapping[str, Mapping[str, int]]
) -> Question:
    """Return the question; ``metric``: of the dataset's definition, ``groups``: scenarios by grouping and group."""
    former = is_former(spec)
    models = 1 if former else int(spec["models_at_first"])
    family = bool(spec.get("family")) and models > 1
    return Question(
        metric=metric,
        bound=spec["bound"],
        design=design_of(spec),
        error_rate=spec["error_rate"] / models if family else spec["error_rate"],
        scenarios=scenarios,
        groups=groups,
        margin=0.0 if former else spec["margin"],
        method=Method.ANYTIME if former else Method(spec["method"]),
        until=Claim(until) if (until := spec.get("until")) is not None else None,
        former=former,
        family=_family(spec["error_rate"], models, divided=family) if models > 1 else None,
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
