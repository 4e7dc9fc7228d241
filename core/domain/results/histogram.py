"""Histograms with few, round and equal bins, whose counts are kept up to date as values arrive."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Most bins of a histogram.
BINS = 40
#: Widths of bins, times a power of ten.
_WIDTHS = (1, 2, 5)
#: Integers from this on are not told apart by a bin for each: the half between two of them is not a float.
_EXACT = 2**52


@dataclass(slots=True)
class ValueRange:
    """What the edges of a histogram depend on: the extremes of its values, and whether all are whole or 0 and 1."""

    low: float = math.inf
    high: float = -math.inf
    whole: bool = True
    binary: bool = True

    def add(self, values: Floats) -> None:
        """Add finite values."""
        if not len(values):
            return
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))
        self.whole = self.whole and bool((values == np.floor(values)).all())
        self.binary = self.binary and bool(((values == 0) | (values == 1)).all())

    def edges(self, most: int = BINS) -> list[float]:
        """Return the edges of at most ``most`` bins, ascending; none without values.

        0 and 1 have two bins; whole numbers in a short range a bin each, with the number in its middle; other values
        bins whose edges are multiples of 1, 2 or 5 times a power of ten. A bin includes its lower edge, and the last
        bin its upper edge as well.
        """
        if self.low > self.high:
            return []
        if self.binary:
            return [-0.5, 0.5, 1.5]
        largest = max(-self.low, self.high)
        if self.whole and largest < _EXACT and self.high - self.low < most:
            return [number - 0.5 for number in range(int(self.low), int(self.high) + 2)]
        edges = _round_edges(self.low, self.high, most, least=1.0 if self.whole and largest < _EXACT else 0.0)
        return edges or _around(self.low, self.high)


def _round_edges(low: float, high: float, most: int, least: float) -> list[float]:
    """Return edges that are multiples of a round width, at least ``least``; none if floats cannot express them."""
    width = max(high / most - low / most, least)  # not (high - low) / most, which may overflow
    if not 1e-290 < width < 1e290:
        return []
    exponent = math.floor(math.log10(width))
    while True:
        for factor in _WIDTHS:
            rounded = _multiple(factor, exponent)
            if rounded < width:
                continue
            first = math.floor(low / rounded)
            if _multiple(first * factor, exponent) > low:  # the division was rounded
                first -= 1
            last = max(math.ceil(high / rounded), first + 1)
            if _multiple(last * factor, exponent) < high:
                last += 1
            if last - first <= most:
                edges = [_multiple(number * factor, exponent) for number in range(first, last + 1)]
                ascends = all(edge < following for edge, following in pairwise(edges))
                return edges if ascends and edges[0] <= low and high <= edges[-1] else []
        exponent += 1
        if exponent > 300:
            return []


def _multiple(number: int, exponent: int) -> float:
    """Return the float next to number times 10 to the exponent, as a decimal literal has it."""
    return float(f"{number}e{exponent}")


def _around(low: float, high: float) -> list[float]:
    """Return the edges of one bin for values that are equal, or too close or too far apart for round edges."""
    margin = max(abs(low), abs(high)) / 16 or 0.5
    largest = float(np.finfo(np.float64).max)
    return [max(low - margin, -largest), min(high + margin, largest)]


def counted(edges: Sequence[float], values: Floats) -> NDArray[np.int64]:
    """Return the number of values in each bin; all of them lie within the edges."""
    return np.bincount(bins_of(edges, values), minlength=max(0, len(edges) - 1))


def bins_of(edges: Sequence[float], values: Floats) -> NDArray[np.int64]:
    """Return the number of each value's bin; the first or the last bin for values beyond them."""
    return np.clip(np.searchsorted(np.asarray(edges), values, side="right") - 1, 0, max(0, len(edges) - 2))


class RunningHistogram:
    """The histogram of values that arrive. Its cost grows with new values, unless they change its edges."""

    def __init__(self) -> None:
        self.range = ValueRange()
        self.edges: list[float] = []
        self.counts: NDArray[np.int64] = np.zeros(0, np.int64)
        self.total = 0.0

    @property
    def count(self) -> int:
        """Number of values."""
        return int(self.counts.sum())

    def add(self, new: Floats, all_values: Callable[[], Floats]) -> None:
        """Add finite values; ``all_values`` returns all so far, with the new ones."""
        if not len(new):
            return
        self.range.add(new)
        with np.errstate(over="ignore", invalid="ignore"):
            self.total += float(new.sum())
        edges = self.range.edges()
        if edges == self.edges:
            self.counts += counted(edges, new)
        else:
            self.edges, self.counts = edges, counted(edges, all_values())
