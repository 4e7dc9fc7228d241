"""Leaderboard: which simulations are compared, their mean over all tasks, and the order of the places."""

import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.results.intervals import normal_interval
from core.domain.results.leaderboard import PlayedScore, penalised, places, plays_all, pooled, shown_score
from core.domain.results.metric_statistics import metric_statistics

NUMBERS = st.floats(-100, 100).map(lambda number: round(number, 3))


def score(id: str, model: str, mean: float, half: float = 1.0, **others: Any) -> PlayedScore:
    members: dict[str, Any] = {
        "digest": "d",
        "version": 1,
        "repeat": 1,
        "seed": 0,
        "tasks": {"total": 10},
        "ended_at": 0.0,
    }
    return PlayedScore(id=id, model=model, mean=mean, low=mean - half, high=mean + half, **(members | others))


@pytest.mark.parametrize(
    ("changes", "whole"),
    [
        ({}, True),
        ({"repeat": 3, "seed": 5}, True),
        ({"select": {"tasks": [2, 0, 1]}}, True),
        ({"select": {"sample": 3, "seed": 1}}, True),
        ({"select": {"range": [0, 2]}}, False),
        ({"select": {"tasks": [0, 1, 1]}}, False),
        ({"select": {"sample": 2}}, False),
        ({"sweep": {"speed": [1, 2]}}, False),
        ({"params": {"speed": 2}}, False),
        ({"select": None}, False),
    ],
)
def test_only_whole_simulations_with_the_defaults_are_compared(changes: dict[str, object], whole: bool) -> None:
    plan = {"select": {"range": [0, 3]}, "sweep": {}, "params": {"speed": 1}} | changes
    assert plays_all(plan, 3, {"speed": 1}) is whole


@given(st.lists(NUMBERS, min_size=1, max_size=30), st.integers(1, 10), NUMBERS)
def test_failed_tasks_are_values_like_others(values: list[float], failed: int, worst: float) -> None:
    every = [*values, *[worst] * failed]
    mean = statistics.fmean(every)
    summary = {
        "count": len(values),
        "mean_ok": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else 0.0,
        "mean_penalised": mean,
        "low": 0.0,
        "high": 0.0,
    }
    expected = normal_interval(len(every), mean, statistics.variance(every) * (len(every) - 1))
    assert penalised(metric_statistics(summary), failed, worst, 1) == pytest.approx((mean, *expected), abs=1e-6)


def test_without_failed_tasks_the_interval_is_that_of_the_summary() -> None:
    summary = {"count": 3, "mean_penalised": 5.0, "low": 4.5, "high": 5.2}
    assert penalised(metric_statistics(summary), 0, 0.0, 1) == (5.0, 4.5, 5.2)
    assert penalised(metric_statistics({"count": 0, "mean_penalised": 0.0}), 4, 0.0, 1) == (0.0, 0.0, 0.0), "all failed"
    assert penalised(metric_statistics({"count": 3, "mean_penalised": None}), 2, None, 1) is None


def test_the_interval_over_all_tasks_is_that_of_the_summary() -> None:
    summary = {"count": 3, "mean_penalised": 5.0, "low": 4.5, "high": 5.2, "low_penalised": 3.0, "high_penalised": 7.0}
    assert penalised(metric_statistics(summary), 2, 0.0, 3) == (5.0, 3.0, 7.0)
    mean, low, high = penalised(
        metric_statistics(summary | {"low_penalised": None, "high_penalised": None}), 0, 0.0, 1
    ) or (0, 0, 0)
    assert mean == 5.0 and math.isnan(low) and math.isnan(high)


def test_an_earlier_summary_of_repetitions_has_no_interval_as_that_of_its_tasks_is_too_narrow() -> None:
    mean, low, high = penalised(
        metric_statistics({"count": 9, "mean_penalised": 5.0, "low": 4.9, "high": 5.1}), 0, 0.0, 3
    ) or (0, 0, 0)
    assert mean == 5.0 and math.isnan(low) and math.isnan(high)


@given(st.lists(st.tuples(st.sampled_from("abc"), NUMBERS), max_size=20), st.booleans())
def test_each_model_has_the_mean_of_its_simulations_and_scores_are_in_order(
    listed: list[tuple[str, float]], lower: bool
) -> None:
    scores = (score(str(at), *pair, seed=at, ended_at=at) for at, pair in enumerate(listed))
    ranked = places(scores, lower_is_better=lower)
    means = {place.score.model: place.score.mean for place in ranked}
    assert means == {
        model: pytest.approx(statistics.fmean(mean for other, mean in listed if other == model)) for model, _ in listed
    }
    assert list(means.values()) == sorted(means.values(), reverse=not lower) and len(ranked) == len(means)
    assert sum(place.score.pooled for place in ranked) == len(listed)


def test_a_model_is_not_better_because_it_has_played_more_seeds() -> None:
    generator = random.Random(3)
    first = 0
    for _ in range(400):
        many = [score(str(seed), "many", generator.gauss(50, 5), seed=seed) for seed in range(20)]
        once = score("x", "once", generator.gauss(50, 5))
        first += places([*many, once], lower_is_better=False)[0].score.model == "many"
    assert 160 <= first <= 240, "the best of 20 seeds is first in 95 %"


def test_a_pooled_score_is_as_uncertain_as_its_simulations() -> None:
    shown = pooled([score("1", "a", 10, 2, ended_at=1.0), score("2", "a", 20, 4, ended_at=3.0)])
    assert (shown.id, shown.mean, shown.low, shown.high, shown.pooled) == ("1", 15, 12, 18, 2)
    assert (shown.tasks, shown.ended_at) == ({"total": 20}, 3.0)


def test_the_same_seed_twice_counts_once_and_only_the_newest_version_does() -> None:
    old = score("0", "a", 99, version=1, digest="old")
    scores = [score("1", "a", 10, version=2, ended_at=1), score("2", "a", 40, version=2, ended_at=2), old]
    assert (shown_score(scores).id, shown_score(scores).mean, shown_score(scores).pooled) == ("1", 10, 1)


def test_the_plan_with_the_most_tasks_is_shown_whatever_the_scores() -> None:
    often = {"repeat": 5, "tasks": {"total": 50}}
    scores = [score("1", "a", 99), score("2", "a", 98, seed=1), score("3", "a", 10, **often)]
    assert shown_score(scores).id == "3"


@pytest.mark.parametrize("lower", [False, True])
def test_a_place_is_better_than_the_next_if_their_intervals_do_not_overlap(lower: bool) -> None:
    sign = -1 if lower else 1
    ranked = places(
        [score("1", "a", sign * 10), score("2", "b", sign * 7), score("3", "c", sign * 6)], lower_is_better=lower
    )
    assert [(place.score.model, place.better) for place in ranked] == [("a", True), ("b", False), ("c", None)]
