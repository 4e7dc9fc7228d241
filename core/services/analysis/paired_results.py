"""Results of two simulations, read and paired by scenario, repetition and swept parameters."""

from collections.abc import Mapping

from core.domain.access.scopes import Caller
from core.domain.comparisons.compared_results import ComparedResults, PairedResults, paired_results
from core.domain.results.declared_results import declared_results
from core.services.simulations.results import Results
from datasets.catalogue.never_values import never_values


def read_pairs(
    caller: Caller, results: Results, ids: tuple[str, str], definition: Mapping[str, object]
) -> tuple[ComparedResults, ComparedResults, PairedResults]:
    """Return the results of both simulations, and their pairs; ``definition``: of the dataset that both used."""
    declared, never = declared_results(definition), never_values(definition)
    first = ComparedResults(declared, never, labelled=True)
    second = ComparedResults(declared, never, labelled=False)
    for id, side in zip(ids, (first, second), strict=True):
        side.add(results.lines(caller, id))
    return first, second, paired_results(first, second)
