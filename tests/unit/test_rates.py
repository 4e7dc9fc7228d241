"""Rates: the declaration of a metric decides, not values that happen to be 0 or 1."""

from typing import Any

import numpy as np
import pytest

from core.domain.results.intervals import wilson
from core.domain.results.rates import OBSERVED, are_rates, declared_rate
from core.domain.results.result_columns import TaskResult
from core.domain.results.result_tally import ResultTally
from datasets.catalogue import datasets
from tests.declared_metrics import declared

RATE = {"name": "hit", "unit": "", "low": 0, "high": 1}


def intervals(metric: dict[str, Any], values: list[Any], known: bool = True) -> tuple[Any, Any]:
    """Return the ends of the interval of a metric in the summary of tasks with these values."""
    tally = ResultTally([metric] if known else [])
    name = metric["name"]
    results = [TaskResult(task, "ok", {}, {name: value}) for task, value in enumerate(values)]
    tally.add(results)
    statistics = tally.summary()["metrics"][name]
    return statistics["low"], statistics["high"]


@pytest.mark.parametrize(
    ("metric", "rate"),
    [
        (RATE, True),
        (RATE | {"low": 0.0, "high": 1.0, "unit": None}, True),
        (RATE | {"unit": "s"}, False),
        (RATE | {"high": 100}, False),
        (RATE | {"low": -1}, False),
        (RATE | {"high": None}, False),
        ({"name": "hit", "unit": "m/s"}, False),
        ({"name": "hit", "low": None, "high": None, "unit": ""}, None),
        ({"name": "hit"}, None),
    ],
)
def test_a_rate_is_declared_by_its_range_and_without_unit(metric: dict[str, Any], rate: bool | None) -> None:
    assert declared_rate(declared(metric)) is rate


def test_a_percentage_that_is_always_0_is_a_mean() -> None:
    score = {"name": "score", "unit": "%", "low": 0.0, "high": 100.0}
    low, high = intervals(score, [0.0] * 880)
    assert low == 0.0 and 0.3 < high < 0.5, "by its range: there is no variance to estimate it from"


def test_a_declared_rate_has_the_interval_of_wilson_also_with_equal_values() -> None:
    assert intervals(RATE, [1] * 10) == wilson(10, 10)
    assert intervals(RATE, [1]) == wilson(1, 1)


def test_a_share_of_steps_is_a_mean() -> None:
    low, high = intervals(RATE, [0.5, 1.0] * 20)
    assert 0.6 < low < 0.75 < high < 0.9


def test_a_mean_of_one_value_has_no_interval() -> None:
    assert intervals({"name": "jerk", "unit": "m/s3", "low": 0, "high": None}, [22.82]) == (None, None)


def test_without_a_declaration_both_values_have_to_occur_often_enough() -> None:
    returns = {"name": "return"}
    assert intervals(returns, [1.0] * 100) == (1.0, 1.0)
    assert intervals(returns, [0, 1] * (OBSERVED // 2), known=False) == wilson(OBSERVED // 2, OBSERVED)
    assert intervals(returns, [0, 1] * 5) != wilson(5, 10)
    assert not are_rates(None, np.array([0.0, 1.0, -1.0] * 20))


def test_booleans_without_a_declaration_are_a_rate() -> None:
    assert intervals({"name": "done"}, [True] * 10, known=False) == wilson(10, 10)
    assert intervals({"name": "done"}, [True] * 9 + [1], known=False) == (1.0, 1.0)


def test_the_rates_of_car_street_are_those_that_are_0_or_1() -> None:
    dataset = datasets()["car_street"]
    rates = {metric["name"] for metric in dataset.definition["metrics"] if declared_rate(declared(metric))}
    assert rates == {"arrived", "collision", "at_fault", "rss_share", "comfort", "event_met"}
    assert not are_rates(True, np.array([0.25, 1.0])), "a share of steps is a mean"
