"""Leaderboard: which simulations are compared, their mean over all tasks, and the order of the places."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.intervals import normal_interval
from core.domain.leaderboard import PlayedScore, penalised, places, plays_all

NUMBERS = st.floats(-100, 100).map(lambda number: round(number, 3))


def score(id: str, model: str, mean: float, half: float = 1.0, ended_at: float = 0.0) -> PlayedScore:
    return PlayedScore(
        id=id, model=model, digest="d", version=1, tasks={}, ended_at=ended_at, mean=mean, low=mean - half,
        high=mean + half,
    )  # fmt: skip


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
    assert penalised(summary, failed, worst) == pytest.approx((mean, *expected), abs=1e-6)


def test_without_failed_tasks_the_interval_is_that_of_the_summary() -> None:
    summary = {"count": 3, "mean_penalised": 5.0, "low": 4.5, "high": 5.2}
    assert penalised(summary, 0, 0.0) == (5.0, 4.5, 5.2)
    assert penalised({"count": 0, "mean_penalised": 0.0}, 4, 0.0) == (0.0, 0.0, 0.0), "all failed"
    assert penalised({"count": 3, "mean_penalised": None}, 2, None) is None


@given(st.lists(st.tuples(st.sampled_from("abc"), NUMBERS), max_size=20), st.booleans())
def test_each_model_has_its_best_score_and_scores_are_in_order(listed: list[tuple[str, float]], lower: bool) -> None:
    ranked = places((score(str(at), *pair) for at, pair in enumerate(listed)), lower_is_better=lower)
    best = min if lower else max
    means = {place.score.model: place.score.mean for place in ranked}
    assert means == {model: best(mean for other, mean in listed if other == model) for model, _ in listed}
    assert list(means.values()) == sorted(means.values(), reverse=not lower) and len(ranked) == len(means)


@pytest.mark.parametrize("lower", [False, True])
def test_a_place_is_better_than_the_next_if_their_intervals_do_not_overlap(lower: bool) -> None:
    sign = -1 if lower else 1
    ranked = places(
        [score("1", "a", sign * 10), score("2", "b", sign * 7), score("3", "c", sign * 6)], lower_is_better=lower
    )
    assert [(place.score.model, place.better) for place in ranked] == [("a", True), ("b", False), ("c", None)]
