"""Metrics as the description of a dataset declares them."""

from collections.abc import Mapping
from typing import Any


def score_of(dataset: Mapping[str, Any]) -> str | None:
    """Return the name of the metric that is the score, None for a dataset without a score."""
    name: str | None = (dataset.get("score") or {}).get("metric")
    return name


def metrics_of(dataset: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the declared metrics by name: the score first, then in the order of the dataset."""
    score = score_of(dataset)
    ordered = sorted(dataset.get("metrics", ()), key=lambda metric: bool(metric["name"] != score))
    return {metric["name"]: metric for metric in ordered}
