"""Scenarios as units: intervals of means and rates over tasks of which several belong to one scenario."""

import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.results import result_tally
from core.domain.results.bounded_mean import bounded_interval
from core.domain.results.intervals import normal_interval, wilson
from core.domain.results.result_columns import TaskResult
from core.domain.results.result_tally import ResultTally
from core.domain.results.scenario_intervals import FEWEST, UnitSums, UnitValues, values_by_unit
from core.domain.results.scenario_units import ScenarioUnits, units_of

REPETITIONS = 400


def scores(generator: np.random.Generator, scenarios: int, tasks: int) -> np.ndarray:
    """Return scores whose mean is 50: half of the variance is the scenario's. Shape (scenarios, tasks)."""
    return 50 + 10 * generator.normal(size=(scenarios, 1)) + 10 * generator.normal(size=(scenarios, tasks))


def hits(generator: np.random.Generator, scenarios: int, tasks: int) -> np.ndarray:
    """Return 0 and 1 with a mean of 0.3, whose probabilities differ between scenarios. Shape (scenarios, tasks)."""
    return (generator.random((scenarios, tasks)) < generator.beta(0.6, 1.4, (scenarios, 1))).astype(float)


def by_scenario(values: np.ndarray) -> UnitValues:
    return values_by_unit(np.repeat(np.arange(len(values)), values.shape[1]), values.ravel())


@pytest.mark.parametrize(("scenarios", "tasks"), [(20, 15), (60, 5), (12, 50)])
def test_the_interval_of_a_mean_covers_it_whatever_the_number_of_tasks_of_a_scenario(
    scenarios: int, tasks: int
) -> None:
    generator = np.random.default_rng(scenarios)
    covered = of_tasks = 0
    for _ in range(REPETITIONS):
        values = scores(generator, scenarios, tasks)
        low, high = by_scenario(values).interval(rate=False, bounds=None)
        covered += low <= 50 <= high
        low, high = normal_interval(values.size, values.mean(), values.var() * values.size)
        of_tasks += low <= 50 <= high
    assert 0.93 * REPETITIONS <= covered <= 0.975 * REPETITIONS
    assert of_tasks < 0.8 * REPETITIONS, "the interval over tasks is too narrow"


@pytest.mark.parametrize(("scenarios", "tasks"), [(60, 5), (40, 15), (288, 3)])
def test_the_interval_of_a_rate_covers_it_whatever_the_number_of_tasks_of_a_scenario(
    scenarios: int, tasks: int
) -> None:
    generator = np.random.default_rng(scenarios)
    covered = of_tasks = 0
    for _ in range(REPETITIONS):
        values = hits(generator, scenarios, tasks)
        low, high = by_scenario(values).interval(rate=True, bounds=None)
        covered += low <= 0.3 <= high
        low, high = wilson(int(values.sum()), values.size)
        of_tasks += low <= 0.3 <= high
    assert 0.93 * REPETITIONS <= covered <= 0.98 * REPETITIONS
    assert of_tasks < 0.92 * REPETITIONS, "the interval over tasks is too narrow"


def test_the_interval_of_a_rate_of_few_scenarios_knows_that_it_is_one() -> None:
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(150):
        values = (generator.random((12, 50)) < generator.beta(0.045, 1.455, (12, 1))).astype(float)  # 0.03
        low, high = by_scenario(values).interval(rate=True, bounds=None)
        covered += low <= 0.03 <= high
    assert covered >= 0.93 * 150, "Wilson's interval with an effective number covers it in 84 %"


def test_a_rate_whose_values_are_all_equal_counts_its_scenarios() -> None:
    never = by_scenario(np.zeros((60, 5)))
    low, high = never.interval(rate=True, bounds=None)
    assert low == 0 and wilson(0, 60)[1] <= high < wilson(0, 50)[1]


def test_equal_shares_in_all_scenarios_count_no_more_than_the_tasks() -> None:
    values = by_scenario(np.tile([0.0, 1.0], (40, 1)))
    assert values.effective == 80


def test_a_mean_of_one_scenario_has_no_interval_however_often_it_was_played() -> None:
    assert math.isnan(by_scenario(np.array([[3.0, 4.0, 5.0]])).interval(rate=False, bounds=(0.0, 9.0))[0])
    low, high = by_scenario(np.array([[1.0, 1.0, 0.0]])).interval(rate=True, bounds=None)
    assert (low, high) == bounded_interval(np.array([2 / 3]), 0.0, 1.0)


@given(st.lists(st.lists(st.floats(0, 100), min_size=1, max_size=4), min_size=1, max_size=40), st.booleans())
def test_an_interval_includes_its_mean(listed: list[list[float]], declared: bool) -> None:
    units = np.repeat(np.arange(len(listed)), [len(values) for values in listed])
    values = values_by_unit(units, np.concatenate(listed))
    low, high = values.interval(rate=False, bounds=(0.0, 100.0) if declared else None)
    assert math.isnan(low) or low - 1e-9 <= values.mean <= high + 1e-9


# -- the units of a plan


def test_a_plan_of_one_task_a_scenario_has_no_units() -> None:
    assert units_of({"range": [0, 60]}, 60, 60) is None
    assert units_of({"tasks": [3, 1]}, 2, 2) is None


def test_repetitions_and_combinations_are_of_the_same_scenario() -> None:
    units = units_of({"range": [0, 60]}, 60, 120)
    assert units is not None and units.count == 60
    assert units.of(np.array([0, 59, 60, 119])).tolist() == [0, 59, 0, 59]


def test_a_scenario_that_is_listed_twice_is_one() -> None:
    units = units_of({"tasks": [7, 5, 7, 9]}, 4, 4)
    assert units is not None and units.count == 3
    assert units.of(np.arange(4)).tolist() == [0, 1, 0, 3]


# -- sums of units


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 299), st.integers(-9, 9)), min_size=1, max_size=80),
    st.integers(1, 2000),
    st.integers(1, 30),
)
def test_joined_units_have_the_sums_of_their_scenarios(
    rows: list[tuple[int, int, int]], room: int, length: int
) -> None:
    sums = UnitSums(300)
    for at in range(0, len(rows), length):
        codes, units, values = (np.array(column) for column in zip(*rows[at : at + length], strict=True))
        sums.add(codes, units, values.astype(float), room)
    for group in {code for code, _, _ in rows}:
        found = sums.of(group)
        joined = round(300 / found.scenarios)
        assert joined >= FEWEST
        mine = [(unit % joined, value) for code, unit, value in rows if code == group]
        expected = values_by_unit(np.array([unit for unit, _ in mine]), np.array([float(value) for _, value in mine]))
        assert found.sums.tolist() == expected.sums.tolist() and found.counts.tolist() == expected.counts.tolist()


# -- summaries

METRICS: list[dict[str, Any]] = [
    {"name": "score", "unit": "%", "low": 0.0, "high": 100.0, "worst": 0.0},
    {"name": "hit", "unit": "", "low": 0, "high": 1, "worst": 1.0},
    {"name": "free", "worst": None},
]


def played(scenarios: int, repeat: int, lags: tuple[int, ...] = (0,), seed: int = 0) -> Iterator[TaskResult]:
    """Yield the results of a plan; each tenth task broke off."""
    generator = np.random.default_rng(seed)
    level = np.clip(70 + 10 * generator.normal(size=scenarios), 0, 100)
    for task in range(len(lags) * repeat * scenarios):
        score = float(np.clip(level[task % scenarios] + 5 * generator.normal(), 0, 100))
        yield TaskResult(
            task=task,
            status="crashed" if generator.random() < 0.1 else "ok",
            scenario={"params": {"lag": lags[task // (scenarios * repeat)]}},
            metrics={"score": score, "hit": int(generator.random() < 0.2), "free": score / 2},
        )


def summary_of(results: list[TaskResult], units: ScenarioUnits | None, **options: Any) -> dict[str, Any]:
    tally = ResultTally(METRICS, units=units, **options)
    tally.add(results)
    return tally.summary()


def expected_of(results: list[TaskResult], name: str, scenarios: int, worst: float | None) -> UnitValues:
    chosen = [result for result in results if result.status == "ok" or worst is not None]
    values = [result.metrics[name] if result.status == "ok" else worst for result in chosen]
    return values_by_unit(np.array([result.task % scenarios for result in chosen]), np.array(values, np.float64))


@pytest.mark.parametrize("scenarios", [12, 60])
def test_the_intervals_of_a_summary_are_those_of_scenarios(scenarios: int) -> None:
    results = list(played(scenarios, 5))
    metrics = summary_of(results, ScenarioUnits(scenarios))["metrics"]
    for metric in METRICS:
        name, rate = metric["name"], metric["name"] == "hit"
        bounds = (0.0, 100.0) if name == "score" else None
        interval = expected_of(results, name, scenarios, None).interval(rate=rate, bounds=bounds)
        assert (metrics[name]["low"], metrics[name]["high"]) == pytest.approx(interval), name
        worst = metric["worst"]
        if worst is None:
            assert metrics[name]["low_penalised"] is metrics[name]["high_penalised"] is None
            continue
        values = expected_of(results, name, scenarios, worst)
        penalised = (metrics[name]["low_penalised"], metrics[name]["high_penalised"])
        assert penalised == pytest.approx(values.interval(rate=rate, bounds=bounds)), name
        assert metrics[name]["mean_penalised"] == pytest.approx(values.mean)


def test_a_row_of_a_sweep_has_the_interval_of_its_scenarios_and_a_total_that_of_all() -> None:
    results = list(played(40, 3, lags=(0, 4)))
    summary = summary_of(results, ScenarioUnits(40), swept=("lag",), per_combination=120)
    for row, part in zip(summary["sweep"]["rows"], (results[:120], results[120:]), strict=True):
        low, high = expected_of(part, "score", 40, None).interval(rate=False, bounds=(0.0, 100.0))
        assert (row["metrics"]["score"]["low"], row["metrics"]["score"]["high"]) == pytest.approx((low, high))
    low, high = expected_of(results, "score", 40, None).interval(rate=False, bounds=(0.0, 100.0))
    assert (summary["metrics"]["score"]["low"], summary["metrics"]["score"]["high"]) == pytest.approx((low, high))


def test_a_row_of_a_sweep_without_repetitions_has_the_interval_of_its_tasks_to_the_last_bit() -> None:
    results = list(played(40, 1, lags=(0, 4)))
    options: dict[str, Any] = {"swept": ("lag",), "per_combination": 40}
    rows = summary_of(results, ScenarioUnits(40), **options)["sweep"]["rows"]
    assert rows == summary_of(results, None, **options)["sweep"]["rows"]


@given(st.integers(1, 19), st.integers(1, 17))
def test_intervals_do_not_depend_on_batches(batch: int, block: int) -> None:
    results = list(played(40, 2))
    with mock.patch.object(result_tally, "BLOCK", block):
        whole = summary_of(results, ScenarioUnits(40))
        tally = ResultTally(METRICS, units=ScenarioUnits(40))
        for at in range(0, len(results), batch):
            tally.add(results[at : at + batch])
        assert tally.summary() == whole
