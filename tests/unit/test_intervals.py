"""Confidence intervals: the bootstrap in blocks has the numbers of one resample at a time."""

import numpy as np
import pytest

from core.domain.intervals import BLOCK, RESAMPLES, mean_interval


@pytest.mark.parametrize("count", [2, 7, 8, 9, 10, 128, 129, 288, 1025, BLOCK])
def test_blocks_of_resamples_give_the_interval_of_single_resamples_to_the_last_bit(count: int) -> None:
    values = np.random.default_rng(count).exponential(size=count) * 1e6
    generator = np.random.Generator(np.random.PCG64(0))
    means = [values[generator.integers(0, count, count)].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, (0.025, 0.975))
    assert mean_interval(values) == (low, high)


def test_a_single_value_is_its_own_interval() -> None:
    assert mean_interval(np.array([3.0])) == (3.0, 3.0)
    assert mean_interval(np.array([])) == (0.0, 0.0)
