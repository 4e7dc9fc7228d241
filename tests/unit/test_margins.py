"""Margins: the default, and those that cannot be tested."""

from typing import Any

import pytest

from core.domain.comparisons.margins import checked_margin
from core.domain.comparisons.metric_scale import MetricScale
from tests.declared_metrics import declared

SCORE: dict[str, Any] = {"name": "score", "better": "higher", "low": 0.0, "high": 100.0, "worst": 0.0, "unit": "%"}
GAP: dict[str, Any] = {"name": "gap", "better": "lower", "unit": "m"}


def margin(metric: dict[str, Any], requested: float | None = None, bound: float | None = None) -> float:
    found = declared(metric)
    return checked_margin(found, MetricScale.of(found, bound), requested)


def test_the_default_is_2_percent_of_the_declared_range() -> None:
    assert margin(SCORE) == 2.0
    assert margin(SCORE | {"high": 1.0}) == pytest.approx(0.02)


def test_there_is_none_without_a_declared_range() -> None:
    assert margin(GAP) == margin(GAP, bound=5.0) == 0.0


def test_of_a_narrow_bound_it_is_that_share_so_that_a_difference_which_counts_can_be_beyond_it() -> None:
    assert margin(SCORE, bound=1.5) == pytest.approx(0.03) and margin(SCORE, bound=400.0) == 2.0


def test_a_margin_of_the_request_is_taken_and_0_is_none() -> None:
    assert (margin(SCORE, 3.5), margin(SCORE, 0.0), margin(GAP, 0.5, bound=5.0)) == (3.5, 0.0, 0.5)


@pytest.mark.parametrize(
    ("metric", "requested", "bound", "words"),
    [
        (GAP, 1.0, None, "Name a `bound`"),
        (SCORE, 100.0, None, "below 100 %"),
        (SCORE, 5.0, 5.0, "below 5 %"),
        (SCORE, -1.0, None, "at least 0"),
        (SCORE, float("nan"), None, "at least 0"),
    ],
)
def test_a_margin_that_cannot_be_tested_is_refused(
    metric: dict[str, Any], requested: float, bound: float | None, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        margin(metric, requested, bound)
