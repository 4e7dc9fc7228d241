"""Sequential test of a whole sample at once: it is the test whose state is continued, without the state."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.sequential_test import Plan, SequentialTest
from core.domain.whole_sample import BLOCK, Floats, sample_test

differences = st.lists(st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-1, 1)), max_size=60)


def assert_equal(plan: Plan, sample: list[float] | Floats) -> None:
    whole, followed = sample_test(plan, sample), SequentialTest(plan=plan).extend(sample)
    for name in ("count", "total", "squares", "peaks", "decided", "decided_at", "low", "high"):
        assert getattr(whole, name) == getattr(followed, name), name
    for name in ("decision", "log_evidence", "p_values", "mean", "std", "interval"):
        assert getattr(whole, name) == getattr(followed, name), name


@given(differences, st.integers(0, 9), st.sampled_from([0.001, 0.05, 0.5]), st.sampled_from([1.0, 2.5]))
def test_all_that_is_known_of_a_sample_is_that_of_the_test_which_is_continued(
    sample: list[float], resolution: int, error_rate: float, bound: float
) -> None:
    assert_equal(Plan(bound=bound, resolution=resolution, error_rate=error_rate), sample)


@pytest.mark.parametrize("mean", [-0.3, -0.01, 0.0, 0.002, 0.05, 0.9])
def test_a_sample_of_several_blocks_is_tested_as_one(mean: float) -> None:
    assert_equal(Plan(bound=1.0), np.random.default_rng(3).normal(mean, 0.3, 2 * BLOCK + 5).clip(-1, 1))


def test_a_difference_outside_of_the_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="not a number between"):
        sample_test(Plan(bound=1.0), [0.5, 1.5])
