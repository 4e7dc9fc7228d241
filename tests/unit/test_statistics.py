"""Statistics of metrics: summaries, confidence intervals and paired differences."""

import math
import random
import statistics

import pytest

from core.domain.statistics import Column, MetricTally, mcnemar, merged, paired, sketched, wilson


def test_no_failure_in_288_tasks_has_an_upper_bound_of_1_in_76() -> None:
    low, high = wilson(0, 288)
    assert low == 0.0 and high == pytest.approx(0.01316, abs=1e-4)


def test_a_column_has_the_textbook_mean_and_deviation() -> None:
    column = Column(None)
    for value in (2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0):
        column.add(value)
    summary = column.summary()
    assert (summary["mean"], summary["min"], summary["max"], summary["p50"]) == (5.0, 2.0, 9.0, 4.5)
    assert summary["std"] == pytest.approx(math.sqrt(32 / 7))
    assert summary["low"] <= 5.0 <= summary["high"]


def test_a_failed_task_never_improves_a_mean() -> None:
    tally = MetricTally([{"name": "score", "worst": 0.0}], ())
    tally.add("ok", {}, {"score": 80.0})
    tally.add("crashed", {}, {})
    metrics = tally.summary()["metrics"]["score"]
    assert (metrics["mean_ok"], metrics["mean_penalised"]) == (80.0, 40.0)


def test_failures_are_shown_first() -> None:
    tally = MetricTally([], ())
    for status in ("ok", "ok", "timed_out", "crashed"):
        tally.add(status, {}, {})
    assert list(tally.summary()["statuses"]) == ["crashed", "timed_out", "ok"]


def test_a_metric_without_a_worst_value_has_no_penalised_mean_after_a_failure() -> None:
    tally = MetricTally([{"name": "ttc"}], ())
    tally.add("ok", {}, {"ttc": 2.0})
    tally.add("invalid", {}, {})
    assert tally.summary()["metrics"]["ttc"]["mean_penalised"] is None


def test_each_group_has_its_own_statistics() -> None:
    tally = MetricTally([{"name": "score", "worst": 0.0}], ("street",))
    tally.add("ok", {"street": "ramp"}, {"score": 10.0})
    tally.add("ok", {"street": "grid"}, {"score": 30.0})
    groups = tally.summary()["groups"]["street"]
    assert [groups[name]["metrics"]["score"]["mean"] for name in ("grid", "ramp")] == [30.0, 10.0]


def test_differences_are_paired_by_scenario() -> None:
    comparison = paired({1: 3.0, 2: 30.0, 9: 0.0}, {1: 1.0, 2: 28.0})
    assert comparison is not None
    assert comparison["difference"] == comparison["low"] == comparison["high"] == 2.0


def test_rates_are_compared_by_discordant_pairs() -> None:
    comparison = paired({n: float(n < 6) for n in range(20)}, {n: 0.0 for n in range(20)})
    assert comparison is not None
    assert (comparison["only_ours"], comparison["only_theirs"], comparison["p"]) == (6, 0, pytest.approx(2 / 64))
    assert mcnemar(0, 0)["p"] == 1.0


def test_sketches_of_batches_add_up() -> None:
    sums: dict[str, list[float]] = {}
    merged([{"x": [2, 3.0, 5.0, 1.0, 2.0]}, {"x": [1, 3.0, 9.0, 3.0, 3.0]}], sums)
    assert sketched(sums)["x"] == {
        "count": 3, "mean": 2.0, "std": 1.0, "min": 1.0, "p50": None, "p90": None, "p99": None, "max": 3.0,
    }  # fmt: skip


def test_a_long_column_is_summed_exactly() -> None:
    generator = random.Random(1)
    values = [generator.gauss(1e6, 3.0) for _ in range(3 * Column.BLOCK + 17)]
    column = Column(None)
    for value in values:
        column.add(value)
    summary = column.summary(interval=False)
    assert summary["count"] == column.count == len(values)
    assert summary["mean"] == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert summary["std"] == pytest.approx(statistics.stdev(values), rel=1e-9)
    assert (summary["min"], summary["max"], summary["p50"]) == (min(values), max(values), statistics.median(values))


def test_a_large_column_is_sampled_and_counted_completely() -> None:
    column = Column(None, kept=10_000)
    for value in range(50_000):
        column.add(float(value))
    summary = column.summary()
    assert (summary["count"], summary["mean"], summary["max"]) == (50_000, 24_999.5, 49_999.0)
    assert summary["p50"] == pytest.approx(25_000, rel=0.01)
