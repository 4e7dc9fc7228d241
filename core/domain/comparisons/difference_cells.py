"""Differences counted in cells: a sample whose size does not grow with the pairs, for p-values that need every value.

A cell is 1/8192 of the bound wide, around its value; 0, the ends and halves are values. A test of a mean against a
null moves the null by half a cell away from the claim, so that rounding never helps a claim.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Cells from 0 to the bound.
CELLS = 8192
#: Half of a cell, as a share of the bound.
HALF = 0.5 / CELLS


@dataclass(frozen=True, kw_only=True, slots=True)
class DifferenceCells:
    """Counts of differences, which are shares of the bound from -1 to 1. ``counts``: by cell, those that occur."""

    counts: Mapping[int, int]

    def extend(self, shares: Floats) -> Self:
        """Return the counts with further differences, shape (n,)."""
        cells, added = np.unique(np.rint(shares * CELLS).astype(np.int64), return_counts=True)
        counts = dict(self.counts)
        for cell, number in zip(cells.tolist(), added.tolist(), strict=True):
            counts[cell] = counts.get(cell, 0) + number
        return type(self)(counts=counts)

    def sample(self) -> tuple[Floats, Floats]:
        """Return the values, as shares of the bound, and how often each occurs, in the order of the values."""
        cells = sorted(self.counts)
        return np.array(cells, np.float64) / CELLS, np.array([self.counts[cell] for cell in cells], np.float64)

    @property
    def mean(self) -> float:
        """Return the mean of the values, as a share of the bound; 0 without values."""
        values, counts = self.sample()
        return float(counts @ values / counts.sum()) if len(values) else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        cells = sorted(self.counts)
        return {"cells": cells, "counts": [self.counts[cell] for cell in cells]}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the counts of ``to_json``."""
        return cls(counts=dict(zip(document["cells"], document["counts"], strict=True)))


NOTHING = DifferenceCells(counts={})
