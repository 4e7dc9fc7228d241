"""Student's t distribution: tails and quantiles beside SciPy's."""

import pytest
from scipy import stats

from core.domain.results.student_t import quantile, upper_tail

DEGREES = (1, 2, 3, 11, 29, 287, 5000)


@pytest.mark.parametrize("degrees", DEGREES)
def test_tails_are_those_of_scipy(degrees: int) -> None:
    for t in (-40.0, -2.1, -0.3, 0.0, 0.4, 1.96, 4.2, 12.7, 60.0):
        assert upper_tail(t, degrees) == pytest.approx(float(stats.t.sf(t, degrees)), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("degrees", DEGREES)
def test_quantiles_are_those_of_scipy(degrees: int) -> None:
    for level in (0.4, 0.1, 0.025, 0.02, 1e-4, 1e-9):
        assert quantile(level, degrees) == pytest.approx(float(stats.t.isf(level, degrees)), rel=1e-8)


def test_a_value_that_is_infinite_has_no_tail_above_it() -> None:
    assert (upper_tail(float("inf"), 5), upper_tail(float("-inf"), 5)) == (0.0, 1.0)
