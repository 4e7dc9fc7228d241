"""Paired differences of metrics: the unit is the scenario, and what few scenarios can say."""

import numpy as np
import pytest
import scipy

from core.domain.results.paired_metrics import paired

NAN = float("nan")


def test_equal_models_with_repetitions_differ_as_seldom_as_they_should() -> None:
    """Over tasks, two equal models differ in 44 % of the cases with 20 scenarios x 15."""
    generator, wrong = np.random.default_rng(1), 0
    indexes = np.repeat(np.arange(40), 15).tolist()
    for _ in range(200):
        first, second = (np.repeat(generator.normal(0, 1, 40), 15) + generator.normal(0, 1, 600) for _ in range(2))
        compared = paired(indexes, first, second)
        assert compared is not None
        wrong += not compared["low"] <= 0 <= compared["high"]
    assert wrong <= 20


def test_scenarios_and_tasks_are_counted_apart() -> None:
    compared = paired([3, 3, 5], np.array([1.0, 3.0, 5.0]), np.array([0.0, 0.0, 5.0]))
    assert compared is not None and (compared["count"], compared["tasks"]) == (2, 3)
    assert (compared["mean"], compared["to"], compared["difference"]) == (3.5, 2.5, 1.0)


def test_few_scenarios_of_a_declared_range_have_an_interval_that_knows_it() -> None:
    compared = paired(list(range(12)), np.full(12, 100.0), np.full(12, 100.0), width=100.0)
    assert compared is not None and compared["low"] < -20 and compared["high"] > 20


def test_few_scenarios_without_a_declared_range_have_the_interval_of_student() -> None:
    values = np.array([0.3, 1.2, 0.9, -0.4, 2.0])
    compared = paired(list(range(5)), values, np.zeros(5))
    expected = scipy.stats.t.interval(0.95, 4, values.mean(), values.std(ddof=1) / 5**0.5)
    assert compared is not None and (compared["low"], compared["high"]) == pytest.approx(expected)


def test_the_test_of_a_rate_counts_scenarios() -> None:
    compared = paired([0, 0, 1, 1], np.array([1.0, 1.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0, 0.0]), declared_rate=True)
    assert compared is not None and (compared["only_ours"], compared["only_theirs"]) == (1, 0)


def test_differences_are_paired_by_scenario() -> None:
    comparison = paired([0, 1, 2, 3], np.array([3.0, 30.0, 0.0, NAN]), np.array([1.0, 28.0, NAN, 5.0]))
    assert comparison is not None and comparison["count"] == 2
    assert comparison["difference"] == comparison["low"] == comparison["high"] == 2.0
    assert paired([0, 1], np.array([NAN, 1.0]), np.array([1.0, NAN])) is None


def test_rates_are_compared_by_discordant_pairs() -> None:
    comparison = paired(list(range(20)), (np.arange(20) < 6).astype(np.float64), np.zeros(20), declared_rate=True)
    assert comparison is not None
    assert (comparison["only_ours"], comparison["only_theirs"], comparison["p"]) == (6, 0, pytest.approx(2 / 64))


def test_a_single_pair_has_no_interval() -> None:
    comparison = paired([4], np.array([3.0]), np.array([1.0]))
    assert comparison and (comparison["difference"], comparison["low"], comparison["high"]) == (2.0, None, None)


def test_only_rates_have_the_test_of_rates() -> None:
    first, second = (np.arange(20) < 6).astype(np.float64), np.zeros(20)
    assert "p" in (paired(list(range(20)), first, second, declared_rate=True) or {})
    assert "p" not in (paired(list(range(20)), first, second, declared_rate=False) or {"p": 0})
