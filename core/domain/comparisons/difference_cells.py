"""Differences counted in cells: a sample whose size does not grow with the pairs, for p-values that need every value.

A cell is 1/8192 of the bound wide, around its value; 0, the ends and halves are values. A test of a mean against a
null moves the null by half a cell away from the claim, so that rounding never helps a claim.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Cells from 0 to the bound.
CELLS = 8192
#: Half of a cell, as a share of the bound.
HALF = 0.5 / CELLS


@dataclass(frozen=True, kw_only=True, slots=True)
class DifferenceCells:
    """Differences, which are shares of the bound from -1 to 1, by cell. ``cells``: those that occur, in order."""

    cells: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()

    def extend(self, shares: Floats) -> Self:
        """Return the counts with further differences, shape (n,)."""
        cells, added = np.unique(np.rint(shares * CELLS).astype(np.int64), return_counts=True)
        counts = Counter(dict(zip(self.cells, self.counts, strict=True)))
        counts.update(dict(zip(cells.tolist(), added.tolist(), strict=True)))
        ordered = sorted(counts)
        return type(self)(cells=tuple(ordered), counts=tuple(counts[cell] for cell in ordered))

    def sample(self) -> tuple[Floats, Floats]:
        """Return the values, as shares of the bound, and how often each occurs, in the order of the values."""
        return np.array(self.cells, np.float64) / CELLS, np.array(self.counts, np.float64)

    @property
    def mean(self) -> float:
        """Return the mean of the values, as a share of the bound; 0 without values."""
        values, counts = self.sample()
        return float(counts @ values / counts.sum()) if len(values) else 0.0


NOTHING = DifferenceCells()
