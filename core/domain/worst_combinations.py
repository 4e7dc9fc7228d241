"""Worst combinations: values of one or two parameters, in bins, with the highest failure rates.

They are sorted by the lower bound of Wilson's 95 % interval, so that few results with many failures do not come before
many results with nearly as many. The bound is that of one combination; of thousands, some are high by chance, and a
combination is a place to look, not a finding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.domain.intervals import Z, wilson
from core.domain.parameter_columns import OTHERS, Values, binned, column_of

#: Bins of a parameter, least results of a combination, and most combinations of the table.
BINS, FEWEST, ROWS = 5, 5, 20


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
    *,
    fewest: int = FEWEST,
    rows: int = ROWS,
) -> list[Combination]:
    """Return the combinations with at least ``fewest`` results and a failure, the worst first, ``rows`` at most.

    ``columns``: a value for each result by parameter; ``failed``: 0 or 1 for each. A pair is left out if its results
    are all the results of one of its values: the other value then adds nothing.
    """
    outcome = np.asarray(failed, np.bool_)
    tables = {name: binned(column_of(values), BINS) for name, values in columns.items()}
    tables = {name: bins for name, bins in tables.items() if len(bins.labels) > 1}
    places = [(name, at) for name, bins in tables.items() for at in range(len(bins.labels))]
    if not places or not outcome.any():
        return []
    members = [tables[name].codes == at for name, at in places]
    counts, failures = _crossed(members), _crossed([flags[outcome] for flags in members])
    parameter = np.repeat(np.arange(len(tables)), [len(bins.labels) for bins in tables.values()])
    named = np.array([tables[name].labels[at] != OTHERS for name, at in places])
    single = np.diag(counts)
    wanted = (counts >= fewest) & (failures > 0) & named[:, None] & named[None, :]
    wanted &= np.triu(parameter[:, None] != parameter[None, :]) | np.eye(len(places), dtype=np.bool_)
    wanted &= ((counts < single[:, None]) & (counts < single[None, :])) | np.eye(len(places), dtype=np.bool_)
    first, second = np.nonzero(wanted)
    count, failure = counts[first, second], failures[first, second]
    low = _wilson_low(failure, count)
    # of equal bounds, a value alone before a pair, and then in the sequence of the parameters
    order = np.lexsort((second, first, first != second, -low))[:rows]
    return [
        _combination(
            {name: tables[name].labels[bin_] for name, bin_ in (places[first[at]], places[second[at]])},
            int(count[at]),
            int(failure[at]),
        )
        for at in order
    ]


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


def _wilson_low(hits: NDArray[np.int64], trials: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the lower bounds of Wilson's intervals, as `core/domain/intervals.py` does for one."""
    share, z2 = hits / trials, Z * Z
    half = Z * np.sqrt(share * (1 - share) / trials + z2 / (4.0 * trials * trials))
    low: NDArray[np.float64] = (share + z2 / (2 * trials) - half) / (1 + z2 / trials)
    return low


def _combination(values: Mapping[str, str], count: int, failures: int) -> Combination:
    low, high = wilson(failures, count)
    return Combination(values=values, count=count, failures=failures, rate=failures / count, low=low, high=high)
