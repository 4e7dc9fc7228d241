"""Mean of bounded values: p-values and intervals that know the range."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from core.domain.results.bounded_mean import Floats, bounded_interval, lower_bound, lower_p_value

SHARES = st.lists(st.floats(-1, 1), min_size=1, max_size=40).map(np.array)


def test_of_successes_and_failures_it_is_the_interval_of_clopper_and_pearson() -> None:
    values = np.array([1.0] * 17 + [0.0] * 3)
    low, high = bounded_interval(values, 0.0, 1.0)
    assert low == pytest.approx(stats.beta.ppf(0.025, 17, 4), abs=2e-3)
    assert high == pytest.approx(stats.beta.ppf(0.975, 18, 3), abs=2e-3)


def test_values_that_are_all_equal_still_leave_room_for_a_crash_that_was_not_seen() -> None:
    assert lower_bound(np.full(288, 0.5), 0.0, 0.025) == pytest.approx(0.5 * 0.025 ** (1 / 288), abs=2e-3)


@pytest.mark.parametrize("size", [3, 16, 60])
@pytest.mark.parametrize("deviations", [1.0, 2.0, 2.6])
def test_the_p_value_is_the_probability_that_the_weighted_mean_is_at_most_the_null(
    size: int, deviations: float
) -> None:
    generator = np.random.default_rng(size)
    values = generator.choice([-1.0, -0.2, 0.1, 0.6, 1.0], size)
    null = float(values.mean() - deviations * values.std() / size**0.5)
    null = max(null, -0.97)
    weights = generator.dirichlet(np.ones(size + 1), 400_000)
    drawn = (weights @ np.append(values, -1.0) <= null).mean()
    assert lower_p_value(values, null, -1.0) == pytest.approx(drawn, rel=0.06, abs=1e-4)


def test_values_may_be_counted_instead_of_listed() -> None:
    listed = np.array([0.3, 0.3, 0.3, -0.4, -0.4, 0.9])
    counted, counts = np.array([0.3, -0.4, 0.9]), np.array([3.0, 2.0, 1.0])
    assert lower_p_value(counted, 0.1, -1.0, counts) == pytest.approx(lower_p_value(listed, 0.1, -1.0), rel=1e-9)
    assert lower_bound(counted, -1.0, 0.02, counts) == pytest.approx(lower_bound(listed, -1.0, 0.02), abs=1e-9)


@given(SHARES, st.floats(-1, 1), st.floats(-1, 1))
def test_a_larger_null_is_never_refuted_more(values: Floats, one: float, other: float) -> None:
    smaller, larger = sorted((one, other))
    assert (
        0 <= lower_p_value(values, smaller, -1.0) <= lower_p_value(values, larger, -1.0) * (1 + 1e-6) + 1e-12 <= 1.001
    )


@given(SHARES)
def test_the_interval_has_the_mean_and_stays_within_the_range(values: Floats) -> None:
    low, high = bounded_interval(values, -1.0, 1.0)
    assert -1 <= low <= float(values.mean()) + 1e-12 and float(values.mean()) - 1e-12 <= high <= 1


def test_the_interval_covers_where_the_bootstrap_and_t_do_not() -> None:
    generator = np.random.default_rng(1)
    samples = generator.choice([100.0, 0.0], (400, 12), p=[0.92, 0.08])
    covered = [low <= 92.0 <= high for low, high in (bounded_interval(sample, 0.0, 100.0) for sample in samples)]
    assert np.mean(covered) >= 0.94


def test_without_values_nothing_is_refuted() -> None:
    assert bounded_interval(np.array([]), 0.0, 1.0) == (0.0, 1.0)
    assert lower_p_value(np.array([]), 0.5, 0.0) == 1.0
