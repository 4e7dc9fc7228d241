"""Results of two simulations, read and paired by scenario, repetition and swept parameters."""

from collections.abc import Mapping
from typing import Any

from core.domain.comparisons.compared_results import ComparedResults, PairedResults, paired_results
from core.services.simulations.results import Results
from datasets.catalogue.never_values import never_values


def read_pairs(
    results: Results, ids: tuple[str, str], definition: Mapping[str, Any]
) -> tuple[ComparedResults, ComparedResults, PairedResults]:
    """Return the results of both simulations, and their pairs; ``definition``: of the dataset that both used."""
    penalties = {
        metric["name"]: float(metric["worst"]) for metric in definition["metrics"] if metric.get("worst") is not None
    }
    never = never_values(definition)
    first = ComparedResults(penalties, definition, definition.get("group_by") or (), never)
    second = ComparedResults(penalties, definition, never=never)
    for id, side in zip(ids, (first, second), strict=True):
        side.add(results.lines(id))
    return first, second, paired_results(first, second)
