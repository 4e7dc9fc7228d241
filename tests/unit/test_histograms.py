"""Histograms: round edges that hold all values, and counts that do not depend on how the values arrive."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.domain.results.histogram import BINS, RunningHistogram, ValueRange, counted

FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.lists(FINITE, min_size=1) | st.lists(st.integers(-300, 300).map(float), min_size=1)


def edges_of(values: Sequence[float]) -> list[float]:
    extremes = ValueRange()
    extremes.add(np.array(values, np.float64))
    return extremes.edges()


@pytest.mark.parametrize("values", [[0, 1], [0, 0, 0], [1]])
def test_0_and_1_have_two_bins(values: list[float]) -> None:
    assert edges_of(values) == [-0.5, 0.5, 1.5]


def test_whole_numbers_in_a_short_range_have_a_bin_each() -> None:
    assert edges_of([2, 5]) == [1.5, 2.5, 3.5, 4.5, 5.5]


@pytest.mark.parametrize(
    ("values", "first", "second", "last"),
    [([0, 500], 0, 20, 500), ([0.2, 0.93], 0.2, 0.22, 0.94), ([-3.5, 96], -5, 0, 100), ([0.1, 0.7], 0.1, 0.12, 0.7)],
)
def test_edges_are_round(values: list[float], first: float, second: float, last: float) -> None:
    edges = edges_of(values)
    assert (edges[0], edges[1], edges[-1]) == (first, second, last)


@given(VALUES)
@example([2.0**52 + 2])
@example([2.0**52 - 1, 2.0**52])
def test_each_value_lies_in_one_of_at_most_forty_bins(values: list[float]) -> None:
    edges = edges_of(values)
    assert 2 <= len(edges) <= BINS + 1 and all(map(math.isfinite, edges))
    assert all(edge < following for edge, following in pairwise(edges))
    counts = counted(edges, np.array(values))
    assert counts.sum() == len(values)
    assert edges[0] <= min(values) and max(values) <= edges[-1]
    for count, (low, high) in zip(counts, pairwise(edges), strict=True):
        assert count == sum(low <= value < high or value == high == edges[-1] for value in values)


@given(st.lists(VALUES, max_size=6))
def test_a_histogram_of_batches_is_that_of_all_values(batches: list[list[float]]) -> None:
    running, arrived = RunningHistogram(), np.zeros(0)
    for batch in batches:
        arrived = np.append(arrived, batch)
        running.add(np.array(batch), lambda: arrived)  # noqa: B023  # called at once
    assert running.count == len(arrived)
    if batches:
        assert running.edges == edges_of(arrived.tolist())
        assert running.counts.tolist() == counted(running.edges, arrived).tolist()


def test_no_values_have_no_bins() -> None:
    assert RunningHistogram().edges == [] and RunningHistogram().count == 0
