"""Statistics of metrics: summaries and confidence intervals."""

import math
import random
import statistics
from typing import Any

import pytest

from core.domain.results.intervals import wilson
from core.domain.results.result_columns import TaskResult
from core.domain.results.result_tally import BLOCK, ResultTally
from core.domain.results.statistics import mcnemar, merged, sketched


def test_no_failure_in_288_tasks_has_an_upper_bound_of_1_in_76() -> None:
    low, high = wilson(0, 288)
    assert low == 0.0 and high == pytest.approx(0.01316, abs=1e-4)


def summary_of(*results: TaskResult, group_by: tuple[str, ...] = ()) -> dict[str, Any]:
    tally = ResultTally([{"name": "score", "worst": 0.0}, {"name": "ttc"}], group_by)
    tally.add(results)
    return tally.summary()


def result(status: str, scenario: dict[str, Any], metrics: dict[str, Any]) -> TaskResult:
    return TaskResult(task=0, status=status, scenario=scenario, metrics=metrics)


def test_a_column_has_the_textbook_mean_and_deviation() -> None:
    values = (2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0)
    summary = summary_of(*(result("ok", {}, {"score": value}) for value in values))["metrics"]["score"]
    assert (summary["mean"], summary["min"], summary["max"], summary["p50"]) == (5.0, 2.0, 9.0, 4.5)
    assert summary["std"] == pytest.approx(math.sqrt(32 / 7))
    assert summary["low"] <= 5.0 <= summary["high"]


def test_a_failed_task_never_improves_a_mean() -> None:
    metrics = summary_of(result("ok", {}, {"score": 80.0}), result("crashed", {}, {}))["metrics"]["score"]
    assert (metrics["mean_ok"], metrics["mean_penalised"]) == (80.0, 40.0)


def test_failures_are_shown_first() -> None:
    summary = summary_of(*(result(status, {}, {}) for status in ("ok", "ok", "timed_out", "crashed")))
    assert list(summary["statuses"]) == ["crashed", "timed_out", "ok"]


def test_a_metric_without_a_worst_value_has_no_penalised_mean_after_a_failure() -> None:
    summary = summary_of(result("ok", {}, {"ttc": 2.0}), result("invalid", {}, {}))
    assert summary["metrics"]["ttc"]["mean_penalised"] is None


def test_each_group_has_its_own_statistics() -> None:
    results = result("ok", {"street": "ramp"}, {"score": 10.0}), result("ok", {"street": "grid"}, {"score": 30.0})
    groups = summary_of(*results, group_by=("street",))["groups"]["street"]
    assert [groups[name]["metrics"]["score"]["mean"] for name in ("grid", "ramp")] == [30.0, 10.0]


def test_no_disagreement_has_a_p_value_of_1() -> None:
    assert mcnemar(0, 0)["p"] == 1.0


def test_sketches_of_batches_add_up() -> None:
    sums: dict[str, list[float]] = {}
    merged([{"x": [2, 3.0, 5.0, 1.0, 2.0]}, {"x": [1, 3.0, 9.0, 3.0, 3.0]}], sums)
    assert sketched(sums)["x"] == {
        "count": 3, "mean": 2.0, "std": 1.0, "min": 1.0, "p50": None, "p90": None, "p99": None, "max": 3.0,
    }  # fmt: skip


def test_a_long_column_is_summed_exactly() -> None:
    generator = random.Random(1)
    values = [generator.gauss(1e6, 3.0) for _ in range(3 * BLOCK + 17)]
    summary = summary_of(*(result("ok", {}, {"score": value}) for value in values))["metrics"]["score"]
    assert summary["count"] == len(values)
    assert summary["mean"] == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert summary["std"] == pytest.approx(statistics.stdev(values), rel=1e-9)
    assert (summary["min"], summary["max"], summary["p50"]) == (min(values), max(values), statistics.median(values))


def test_what_is_too_large_for_a_number_is_none() -> None:
    sums: dict[str, list[float]] = {}
    merged([{"x": [2, 3e307, 1e308, 1e153, 2e154]}] * 8, sums)
    assert sketched(sums)["x"]["std"] is None and sketched(sums)["x"]["max"] == 2e154
