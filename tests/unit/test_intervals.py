"""Confidence intervals: the bootstrap in blocks has the numbers of one resample at a time."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from core.domain.results.bounded_mean import bounded_interval, lower_bound, lower_p_value
from core.domain.results.intervals import (
    BLOCK,
    FEW,
    RESAMPLES,
    mean_interval,
    normal_interval,
    student_interval,
    wilson,
)


@pytest.mark.parametrize("count", [30, 31, 128, 129, 288, 1025, BLOCK])
def test_blocks_of_resamples_give_the_interval_of_single_resamples_to_the_last_bit(count: int) -> None:
    values = np.random.default_rng(count).exponential(size=count) * 1e6
    generator = np.random.Generator(np.random.PCG64(0))
    means = [values[generator.integers(0, count, count)].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, (0.025, 0.975))
    assert mean_interval(values) == (low, high)


def test_a_mean_of_fewer_than_two_values_has_no_interval() -> None:
    for interval in (mean_interval(np.array([3.0])), mean_interval(np.array([])), normal_interval(1, 3.0, 0.0)):
        assert all(map(math.isnan, interval))


def test_few_values_of_which_most_are_the_best_have_an_interval_that_covers_their_mean() -> None:
    generator = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        low, high = mean_interval(100.0 * (generator.random(12) < 0.92), (0.0, 100.0))
        covered += low <= 92 <= high
    assert covered >= 0.93 * 200, "the bootstrap covers it in 60 %"


@pytest.mark.parametrize("count", [2, 12, 288])
@pytest.mark.parametrize("level", [0.025, 0.0005])
def test_a_bound_of_a_mean_has_a_p_value_of_the_level(count: int, level: float) -> None:
    generator = np.random.default_rng(count)
    for values in (generator.uniform(0, 100, count), 100.0 * (np.arange(count) > count // 10), np.full(count, 50.0)):
        assert lower_p_value(values, lower_bound(values, 0.0, level), 0.0) == pytest.approx(level, rel=1e-6)
    assert lower_bound(np.zeros(count), 0.0, level) == 0.0


def test_few_values_have_the_interval_of_their_range_or_of_student() -> None:
    values = np.random.default_rng(3).uniform(0, 100, FEW - 1)
    assert mean_interval(values, (0.0, 100.0)) == bounded_interval(values, 0.0, 100.0)
    student = stats.ttest_1samp(values, 0.0).confidence_interval()
    assert mean_interval(values) == pytest.approx((student.low, student.high), rel=1e-8)
    beyond = values + 50
    assert mean_interval(beyond, (0.0, 100.0)) == mean_interval(beyond), "the declared range is wrong"
    assert student_interval(2, 1.0, 0.0) == (1.0, 1.0) and math.isnan(student_interval(1, 1.0, 0.0)[0])


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert mean_interval(np.array([500.0, 500.0])) == normal_interval(2, 500.0, 0.0) == (500.0, 500.0)


@given(st.integers(1, 10**7).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_the_interval_of_a_rate_is_in_0_to_1_and_includes_the_rate(counts: tuple[int, int]) -> None:
    hits, trials = counts
    low, high = wilson(hits, trials)
    assert 0 <= low <= hits / trials <= high <= 1 and low < high


@given(st.integers(1, 10**7))
def test_rates_of_0_and_1_are_exact_ends_of_their_intervals(trials: int) -> None:
    assert wilson(0, trials)[0] == 0.0 and wilson(trials, trials)[1] == 1.0


@pytest.mark.parametrize("count", [20, 29, 30, 31, 1000])
def test_values_that_are_all_equal_have_the_interval_of_their_range(count: int) -> None:
    low, high = mean_interval(np.full(count, 500.0), (0.0, 500.0))
    assert high == 500.0 and low == pytest.approx(500 * 0.025 ** (1 / count), rel=1e-6)
    assert mean_interval(np.full(40, 3.0), (0.0, math.inf)) == (3.0, 3.0), "no range says more"


@pytest.mark.parametrize("count", [12, 48])
def test_an_interval_has_no_mean_that_the_metric_cannot_have(count: int) -> None:
    values = np.zeros(count)
    values[0] = 3.0
    (low, high), (free, _) = mean_interval(values, (0.0, math.inf)), mean_interval(values)
    assert low == 0.0 < high and (free < 0 or count == 48)
