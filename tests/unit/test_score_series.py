"""Score series: bounded, with the mean of all scores, whatever the batches in which results arrive."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.results.result_columns import TaskResult
from core.domain.results.score_series import PARTS, ArrivalSeries, TaskSeries

SCORES = st.floats(-1e6, 1e6)


def result(task: int, score: Any, status: str = "ok") -> TaskResult:
    return TaskResult(task=task, status=status, scenario={}, metrics={"score": score}, error=None, timing={})


def test_the_series_of_an_ended_simulation_has_the_means_of_equal_parts_in_task_order() -> None:
    series = TaskSeries("score", 48)
    series.add([result(task, task) for task in reversed(range(48))])
    assert series.described() == {"metric": "score", "mean": 23.5, "series": [2 * part + 0.5 for part in range(24)]}


def test_few_tasks_are_a_part_each_and_those_without_a_score_are_left_out() -> None:
    series = TaskSeries("score", 5)
    series.add([result(0, 1), result(1, 2.0, "failed"), result(2, None), result(3, 10**400), result(4, True)])
    assert series.described() == {"metric": "score", "mean": 1.0, "series": [1.0, 1.0]}


@pytest.mark.parametrize("metric", [None, "another"])
def test_a_dataset_without_a_score_has_no_series(metric: str | None) -> None:
    tasks, arrivals = TaskSeries(metric, 3), ArrivalSeries(metric)
    tasks.add([result(0, 1.0)])
    arrivals.add({"score": [3, 1.0]})
    assert tasks.described() is arrivals.described() is None


@given(st.lists(SCORES, min_size=1, max_size=200), st.integers(1, 50))
def test_the_mean_and_the_number_of_parts_do_not_depend_on_blocks(scores: list[float], block: int) -> None:
    series = TaskSeries("score", len(scores))
    for start in range(0, len(scores), block):
        series.add([result(start + at, score) for at, score in enumerate(scores[start : start + block])])
    described = series.described()
    assert described is not None and len(described["series"]) == min(PARTS, len(scores))
    assert described["mean"] == pytest.approx(math.fsum(scores) / len(scores), rel=1e-4, abs=1e-3)


@given(st.lists(st.tuples(st.integers(1, 700), SCORES), min_size=1, max_size=60))
def test_a_series_in_order_of_arrival_stays_bounded_and_keeps_the_mean(batches: list[tuple[int, float]]) -> None:
    series = ArrivalSeries("score")
    for count, mean in batches:
        series.add({"score": [count, count * mean, 0.0, 0.0, 0.0], "other": [1, 1.0]})
    described = series.described()
    total = sum(count for count, _ in batches)
    assert described is not None and min(PARTS // 2, total) <= len(described["series"]) <= PARTS
    expected = math.fsum(count * mean for count, mean in batches) / total
    assert described["mean"] == pytest.approx(expected, rel=1e-4, abs=1e-3)
    low, high = min(mean for _, mean in batches), max(mean for _, mean in batches)
    assert all(low - 1 - abs(low) / 1e4 <= value <= high + 1 + abs(high) / 1e4 for value in described["series"])


def test_results_that_arrive_one_by_one_are_merged_in_order() -> None:
    series = ArrivalSeries("score")
    for number in range(PARTS + 1):
        series.add({"score": [1, float(number)]})
    described = series.described()
    assert described is not None
    assert described["series"] == [2 * pair + 0.5 for pair in range(PARTS // 2)] + [float(PARTS)]
