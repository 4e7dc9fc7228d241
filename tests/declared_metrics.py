"""Declared metrics for tests, from the form that definitions have."""

from collections.abc import Mapping

from core.domain.results.declared_results import DeclaredMetric, declared_metrics


def declared(metric: Mapping[str, object]) -> DeclaredMetric:
    """Return a metric of a definition."""
    return declared_metrics([metric])[0]
