"""Levels of looks: known bounds, the error rate that they add up to, and looks that cannot decide."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.comparisons.alpha_spending import look_levels, looks_of, spent

NORMAL = NormalDist()


def test_the_bounds_are_those_that_were_published_for_these_looks() -> None:
    """Bounds of the looks at 64 to 288 pairs, of an independent implementation."""
    levels = look_levels(looks_of(288), 0.025)
    bounds = [-NORMAL.inv_cdf(level) for level in levels[3:]]
    assert bounds == pytest.approx([4.17, 3.66, 3.24, 2.85, 2.53, 2.25, 2.07], abs=0.02)


@pytest.mark.parametrize("scenarios", [48, 288, 2000])
def test_all_looks_together_have_the_error_rate(scenarios: int) -> None:
    looks, generator = looks_of(scenarios), np.random.default_rng(scenarios)
    statistics = generator.normal(size=(8000, scenarios)).cumsum(axis=1)[:, np.array(looks) - 1] / np.sqrt(looks)
    bounds = np.array([-NORMAL.inv_cdf(level) if level else np.inf for level in look_levels(looks, 0.05)])
    assert (statistics > bounds).any(axis=1).mean() == pytest.approx(0.05, abs=0.008)


@given(st.integers(2, 3000), st.floats(0.001, 0.25))
def test_no_look_has_more_than_all_together(scenarios: int, level: float) -> None:
    levels = look_levels(looks_of(scenarios), level)
    assert all(0 <= one <= level * (1 + 1e-6) for one in levels) and sum(levels) >= level * (1 - 1e-6)


def test_a_single_look_has_the_whole_error_rate() -> None:
    assert look_levels((12,), 0.02) == (0.02,) and spent(1.0, 0.02) == pytest.approx(0.02)
