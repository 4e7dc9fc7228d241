"""Parts of the definitions of plants and of OpenEnv environments: metrics and parameters.

The digest of a definition is part of every task's seed: a change of any text changes all results of its dataset.
"""

from collections.abc import Mapping
from typing import Any

#: The parameters of every dataset whose simulator has no others.
PARAMS: Mapping[str, Any] = {
    "latency_steps": {
        "type": "int",
        "default": 0,
        "low": 0,
        "high": 10,
        "description": "Steps by which every action takes effect later.",
    }
}


def metric(
    name: str,
    title: str,
    unit: str,
    formula: str,
    better: str | None = None,
    *,
    source: str,
    worst: float | None = None,
) -> dict[str, Any]:
    """Return a metric without bounds; ``better`` is "higher" or "lower".

    ``worst``: the value of a scenario that a model's fault ended.
    """
    return {
        "name": name,
        "title": title,
        "unit": unit,
        "formula": formula,
        "source": source,
        "better": better,
        "worst": worst,
        "low": None,
        "high": None,
    }


def steps_metric(steps: int) -> dict[str, Any]:
    """Return the metric of the steps that were played, of at most so many."""
    return metric("length", "Steps", "count", "number of steps played", source="ours") | {"low": 0, "high": steps}


def clipping_metric() -> dict[str, Any]:
    """Return the metric of the actions that were clipped."""
    formula = "number of steps whose action was clipped"
    return metric("clipped_actions", "Actions out of range", "count", formula, "lower", source="ours") | {"low": 0}
