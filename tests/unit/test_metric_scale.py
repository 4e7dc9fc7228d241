"""Scale of a comparison: bounds that a dataset declares, that a request names, and the signs of differences."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.comparisons.metric_scale import MetricScale, ScaleKind
from tests.declared_metrics import declared

SCORE: dict[str, Any] = {"name": "score", "unit": "%", "better": "higher", "worst": 0.0, "low": 0.0, "high": 100.0}
GAP: dict[str, Any] = {"name": "gap", "unit": "m", "better": "lower", "worst": None, "low": 0.0, "high": None}
NAN = float("nan")
values = st.one_of(st.floats(-1e300, 1e300), st.just(NAN))


def differences(scale: MetricScale, first: list[float], second: list[float]) -> tuple[list[float], int]:
    result, clipped = scale.differences(np.array(first), np.array(second))
    return result.tolist(), clipped


def test_declared_bounds_give_the_range() -> None:
    scale = MetricScale.of(declared(SCORE))
    assert (scale.kind, scale.bound, scale.unit) == (ScaleKind.DECLARED, 100.0, "%")
    assert differences(scale, [80.0, 20.0], [50.0, 50.0]) == ([30.0, -30.0], 0)
    assert scale.message() is None


def test_a_worst_value_outside_of_the_declared_bounds_widens_them() -> None:
    scale = MetricScale.of(declared(SCORE | {"worst": -20.0}))
    assert scale.bound == 120.0 and differences(scale, [NAN], [100.0]) == ([-120.0], 0)


def test_a_failed_task_counts_as_the_worst_value() -> None:
    scale = MetricScale.of(declared(SCORE | {"better": "lower", "worst": 100.0}))
    assert differences(scale, [NAN, 10.0, NAN], [10.0, NAN, NAN]) == ([-90.0, 90.0, 0.0], 0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_failed_task_is_no_advantage_over_a_value_that_is_worse_than_the_declared_worst(sign: float) -> None:
    """The return of a long scenario, and that of a simulator whose rewards have no bound."""
    endless = SCORE | {"low": None, "high": None, "worst": sign * -800.0, "better": "higher" if sign > 0 else "lower"}
    first, second = [NAN, sign * -1000.0, NAN, sign * -700.0], [sign * -1000.0, NAN, sign * -700.0, NAN]
    assert differences(MetricScale.of(declared(endless)), first, second) == ([-1.0, 1.0, -1.0, 1.0], 0)
    clipped = MetricScale.of(declared(endless), bound=500.0)
    assert differences(clipped, first, second) == ([-500.0, 500.0, -100.0, 100.0], 0)


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_without_a_declared_worst_value_it_is_the_worse_of_the_bounds(better: str) -> None:
    scale = MetricScale.of(declared(SCORE | {"worst": None, "better": better}))
    assert differences(scale, [NAN, 50.0], [50.0, NAN]) == ([-50.0, 50.0], 0)


def test_values_outside_of_the_declared_bounds_are_clipped_and_counted() -> None:
    scale = MetricScale.of(declared(SCORE))
    assert differences(scale, [120.0, 50.0], [50.0, 50.0]) == ([50.0, 0.0], 1)
    assert scale.message(1) == "Values outside of 0 to 100, which the dataset declares, were clipped: 1."


def test_a_bound_of_the_request_clips_both_sides_and_says_so() -> None:
    scale = MetricScale.of(declared(GAP), bound=5.0)
    assert scale.kind is ScaleKind.CLIPPED
    assert differences(scale, [1.0, 9.0, 3.0, NAN], [9.0, 1.0, 2.0, 4.0]) == ([5.0, -5.0, -1.0, -5.0], 2)
    message = scale.message(2)
    assert message is not None and "beyond 5 m count as 5 m: 2 of the pairs" in message


def test_a_bound_narrower_than_the_declared_range_clips_and_a_wider_one_changes_nothing() -> None:
    assert MetricScale.of(declared(SCORE), bound=20.0).kind is ScaleKind.CLIPPED
    assert MetricScale.of(declared(SCORE), bound=200.0) == MetricScale.of(declared(SCORE))


def test_a_metric_without_bounds_is_compared_by_sign() -> None:
    scale = MetricScale.of(declared(GAP))
    assert (scale.kind, scale.bound, scale.unit) == (ScaleKind.SIGN, 1.0, "")
    assert differences(scale, [1.0, 9.0, 3.0, NAN, NAN], [1e9, 1.0, 3.0, 4.0, NAN]) == ([1.0, -1.0, 0.0, -1.0, 0.0], 0)
    message = scale.message()
    assert message is not None and "name a `bound`" in message


@given(
    st.lists(st.tuples(values, values)),
    st.sampled_from([SCORE, GAP, GAP | {"worst": 9.0}]),
    st.sampled_from([None, 3.0]),
)
def test_differences_are_bounded_and_mirrored_by_swapping_the_models(
    pairs: list[tuple[float, float]], metric: dict[str, Any], bound: float | None
) -> None:
    scale = MetricScale.of(declared(metric), bound)
    first, second = np.array(pairs, np.float64).reshape(-1, 2).T
    result, clipped = scale.differences(first, second)
    mirrored, also_clipped = scale.differences(second, first)
    assert (np.abs(result) <= scale.bound).all() and (result == -mirrored).all() and clipped == also_clipped


@pytest.mark.parametrize("bound", [0.0, -1.0, NAN, float("inf")])
def test_a_bound_that_is_not_a_number_above_zero_is_refused(bound: float) -> None:
    with pytest.raises(ValueError, match="from 1e-100 to"):
        MetricScale.of(declared(SCORE), bound)


def test_a_metric_without_a_direction_is_refused() -> None:
    with pytest.raises(ValueError, match="a higher or a lower `outcome`"):
        MetricScale.of(declared({"name": "outcome", "better": None}))


def test_every_metric_with_a_direction_of_the_built_in_datasets_has_a_scale() -> None:
    files = sorted(Path("datasets/catalogue").glob("*/dataset.json"))
    metrics = [metric for file in files for metric in json.loads(file.read_text())["metrics"] if metric["better"]]
    kinds = {MetricScale.of(declared(metric)).kind for metric in metrics}
    assert len(metrics) > 10 and kinds == {ScaleKind.DECLARED, ScaleKind.SIGN}
