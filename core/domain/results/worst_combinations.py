"""Worst combinations: values of one or two parameters, in bins, with the highest failure rates.

They are sorted by the lower bound of their intervals, so that few results with many failures do not come before many
results with nearly as many. All intervals hold at once, at an error rate of 5 %: each has its part of it (Bonferroni),
as the highest of thousands of equal rates is high by chance. So far out the normal approximation, and Wilson's interval
with it, does not hold; the bound is Chernoff's for the mean of independent values from 0 to 1 (Hoeffding, J. Am. Stat.
Assoc. 58, 1963, Theorem 1), the failed shares of scenarios.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.domain.results.parameter_columns import OTHERS, Values, binned, column_of

#: Probability that any of the intervals does not hold, and halvings of the search for their ends.
ERROR_RATE, HALVINGS = 0.05, 40
#: Bins of a parameter, least results of a combination, and most combinations of the table.
BINS, FEWEST, ROWS = 5, 5, 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Combinations:
    """The worst combinations, and the number of those that they were picked from."""

    worst: Sequence["Combination"]
    candidates: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Combination:
    """Bins of one or two parameters, by name, and the failures among the results that have them."""

    values: Mapping[str, str]
    count: int
    failures: int
    rate: float
    low: float
    high: float


def worst_combinations(
    columns: Mapping[str, Values],
    failed: Sequence[bool] | NDArray[np.bool_],
    units: NDArray[np.int64] | None = None,
    *,
    rows: int = ROWS,
) -> Combinations:
    """Return the combinations with at least FEWEST scenarios and a failure, the worst first, ``rows`` at most.

    ``columns``: a value for each result by parameter; ``failed``: 0 or 1 for each; ``units``: its scenario, None if
    each has its own. A pair is left out if its results are all the results of one of its values: the other value then
    adds nothing.
    """
    outcome = np.asarray(failed, np.bool_)
    tables = {name: binned(column_of(values), BINS) for name, values in columns.items()}
    tables = {name: bins for name, bins in tables.items() if len(bins.labels) > 1}
    places = [(name, at) for name, bins in tables.items() for at in range(len(bins.labels))]
    if not places or not outcome.any():
        return Combinations(worst=[], candidates=0)
    members = [tables[name].codes == at for name, at in places]
    counts, failures = _crossed(members), _crossed([flags[outcome] for flags in members])
    scenarios = counts if units is None else np.minimum(counts, _crossed(_members_of_units(members, units)))
    parameter = np.repeat(np.arange(len(tables)), [len(bins.labels) for bins in tables.values()])
    named = np.array([tables[name].labels[at] != OTHERS for name, at in places])
    single = np.diag(counts)
    wanted = (scenarios >= FEWEST) & named[:, None] & named[None, :]
    wanted &= np.triu(parameter[:, None] != parameter[None, :]) | np.eye(len(places), dtype=np.bool_)
    wanted &= ((counts < single[:, None]) & (counts < single[None, :])) | np.eye(len(places), dtype=np.bool_)
    candidates = int(wanted.sum())
    first, second = np.nonzero(wanted & (failures > 0))
    count, failure = counts[first, second], failures[first, second]
    rate, trials = failure / count, scenarios[first, second]
    evidence = math.log(2 * candidates / ERROR_RATE) if candidates else 0.0
    low = _chernoff_end(rate, trials, evidence, np.zeros(len(rate)))
    high = _chernoff_end(rate, trials, evidence, np.ones(len(rate)))
    # of equal bounds, a value alone before a pair, and then in the sequence of the parameters
    order = np.lexsort((second, first, first != second, -low))[:rows]
    worst = [
        Combination(
            values={name: tables[name].labels[bin_] for name, bin_ in (places[first[at]], places[second[at]])},
            count=int(count[at]),
            failures=int(failure[at]),
            rate=float(rate[at]),
            low=float(low[at]),
            high=float(high[at]),
        )
        for at in order
    ]
    return Combinations(worst=worst, candidates=candidates)


def _members_of_units(members: Sequence[NDArray[np.bool_]], units: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
    """Return whether each scenario has a result in a bin."""
    _, positions = np.unique(units, return_inverse=True)
    return [np.bincount(positions, flags) > 0 for flags in members]


def _crossed(members: Sequence[NDArray[np.bool_]]) -> NDArray[np.int64]:
    """Return how many results each two bins share, above the diagonal, and on it those of a bin.

    ``members``: whether each result is in a bin. A bit for each, so that 64 results are counted at once.
    """
    packed = np.array([np.packbits(flags) for flags in members])
    words = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)
    counts = np.zeros((len(members), len(members)), np.int64)
    for at in range(len(members)):
        counts[at, at:] = np.bitwise_count(words[at:] & words[at]).sum(axis=1, dtype=np.int64)
    return counts


def _chernoff_end(
    rate: NDArray[np.float64], trials: NDArray[np.int64], evidence: float, end: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the rate between ``rate`` and ``end`` up to which the observed one is not refuted.

    ``evidence``: the logarithm of the inverse of the probability of an observation as extreme, at most.
    """
    kept, refuted = rate, end
    for _ in range(HALVINGS):
        middle = (kept + refuted) / 2
        beyond = trials * _divergence(rate, middle) > evidence
        kept, refuted = np.where(beyond, kept, middle), np.where(beyond, middle, refuted)
    return np.where(rate == end, end, kept)


def _divergence(rate: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the divergence of Kullback and Leibler of two rates; ``other`` is neither 0 nor 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        hits = np.where(rate > 0, rate * np.log(rate / other), 0.0)
        misses = np.where(rate < 1, (1 - rate) * np.log((1 - rate) / (1 - other)), 0.0)
    divergence: NDArray[np.float64] = hits + misses
    return divergence
