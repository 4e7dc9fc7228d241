"""Dependence of metrics on parameters: groups, intervals, points and heat maps, against plain references."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import Invalid
from core.domain.results.bounded_mean import bounded_interval
from core.domain.results.declared_results import DeclaredFailure
from core.domain.results.dependence import (
    NUMBERS,
    POINTS,
    VALUES,
    axis_of,
    heat_map,
    metric_values,
    outcomes_by_group,
    points,
    statistics_by_group,
)
from core.domain.results.intervals import wilson
from core.domain.results.result_groups import OTHERS
from core.domain.results.result_table import ResultTable, TableRows
from core.domain.results.scenario_units import ScenarioUnits
from core.domain.submissions.task_parameters import Parameter, parameter_of, scenario_parameters, swept_parameters
from runtimes.harness.evaluator.tasks import TaskPlan
from tests.unit.test_result_tables import lines


def rows_of(results: Sequence[tuple[str, Mapping[str, Any]]]) -> TableRows:
    table = ResultTable()
    table.add(lines(results))
    return table.rows()


def parameter(values: Sequence[Any]) -> Parameter:
    made = parameter_of("p", "scenario", values, 1)
    assert made is not None
    return made


# -- parameters


SCENARIOS = [
    {"index": 0, "name": "a", "street": "grid", "start": {"speed": 8.0, "lane": 1}, "route": ["x"], "wet": True},
    {"index": 1, "name": "b", "street": "ramp", "start": {"speed": 9.5}, "route": [], "wet": None},
    {"index": 2, "name": "c", "street": 7, "start": None},
]


def test_parameters_are_the_fields_of_scenarios() -> None:
    parameters = {made.name: made.described() for made in scenario_parameters(SCENARIOS, [2, 0])}
    assert parameters == {
        "street": {
            "name": "street",
            "source": "scenario",
            "kind": "category",
            "distinct": 2,
            "values": ["7", "grid"],
        },
        "start.speed": {
            "name": "start.speed",
            "source": "scenario",
            "kind": "number",
            "distinct": 1,
            "values": [8],
            "low": 8,
            "high": 8,
        },
        "start.lane": {
            "name": "start.lane",
            "source": "scenario",
            "kind": "number",
            "distinct": 1,
            "values": [1],
            "low": 1,
            "high": 1,
        },
        "wet": {"name": "wet", "source": "scenario", "kind": "category", "distinct": 1, "values": ["true"]},
    }


@given(
    st.sampled_from([{"range": [1, 4]}, {"tasks": [3, 0, 3]}, {"sample": 2, "seed": 1}]),
    st.integers(1, 3),
    st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=3),
)
def test_a_task_has_the_parameters_of_its_place_in_the_plan(
    select: Mapping[str, Any], repeat: int, sweep: Mapping[str, list[int]]
) -> None:
    document = {"seed": 0, "dataset": "d", "select": select, "total_scenarios": 5, "repeat": repeat, "sweep": sweep}
    plan = TaskPlan(document)
    indices = [plan.locate(position).index for position in range(plan.scenarios)]
    [scenario] = scenario_parameters([{"size": 10 * index} for index in range(5)], indices)
    swept = {made.name: made for made in swept_parameters(sweep, plan.per_combination)}
    tasks = np.arange(plan.count, dtype=np.int32)
    located = [plan.locate(task) for task in range(plan.count)]
    assert scenario.of(tasks).tolist() == [10 * task.index for task in located]
    for name in sweep:
        assert swept[f"params.{name}"].of(tasks).tolist() == [task.swept[name] for task in located]


@pytest.mark.parametrize(
    ("values", "text", "tasks"),
    [(["a", "b", "a"], "a", [0, 2]), ([True, False, None], "true", [0]), ([1, 2.5, 1000], "2.5", [1])]
    + [([1, 2.5, 1000], text, [2]) for text in ("1000", "1000.0", "1e3")],
)
def test_tasks_are_chosen_by_the_value_of_a_parameter(values: list[Any], text: str, tasks: list[int]) -> None:
    assert np.flatnonzero(parameter(values).having(np.arange(3), text)).tolist() == tasks


@pytest.mark.parametrize(("values", "text"), [(["ramp", "grid"], "ram"), ([1, 2], "3"), ([1, 2], "x")])
def test_a_value_that_no_task_has_is_refused(values: list[Any], text: str) -> None:
    with pytest.raises(Invalid, match=f"No task has p='{text}'"):
        parameter(values).having(np.arange(3), text)


# -- one parameter


GROUPED = st.lists(
    st.tuples(
        st.sampled_from(["ok", "ok", "crashed"]),
        st.sampled_from(["x", "y", 3, None]),
        st.floats(-1e6, 1e6) | st.none(),
    ),
    min_size=1,
    max_size=40,
)


@given(GROUPED, st.sampled_from([None, 7.0]))
def test_groups_have_the_statistics_of_their_tasks(
    results: Sequence[tuple[str, Any, float | None]], worst: float | None
) -> None:
    made = parameter_of("p", "scenario", [value for _, value, _ in results], 1)
    if made is None:
        return
    rows = rows_of([(status, {"m": metric}) for status, _, metric in results])
    values = metric_values("m", rows, {"m": worst}, None)
    groups = statistics_by_group(axis_of(made), rows.tasks, values)
    for group in groups:
        counted = [
            metric if status == "ok" else worst
            for status, value, metric in results
            if value is not None and group["value"] in (value, str(value))
        ]
        numbers = [number for number in counted if number is not None]
        assert group["count"] == len(numbers)
        if numbers:
            assert group["mean"] == pytest.approx(statistics.fmean(numbers), abs=1e-6)
            assert (group["min"], group["max"]) == (min(numbers), max(numbers))
            assert group["p50"] == pytest.approx(statistics.median(numbers))
            if len(numbers) > 1:
                assert group["low"] <= group["mean"] + 1e-6 and group["mean"] <= group["high"] + 1e-6
            else:
                assert group["low"] is group["high"] is None
        else:
            assert group["mean"] is None and group["p25"] is None


def test_statistics_beyond_every_float_are_null() -> None:
    rows = rows_of([("ok", {"m": number}) for number in (1.7e308, 1.7e308, -1.7e308, 1.7e308)])
    [group] = statistics_by_group(axis_of(parameter(["only"])), rows.tasks, metric_values("m", rows, {}, None))
    assert (group["mean"], group["min"], group["max"]) == (None, -1.7e308, 1.7e308)


def test_a_rate_has_the_interval_of_wilson() -> None:
    rows = rows_of([("ok", {"hit": number % 4 == 0}) for number in range(100)])
    values = metric_values("hit", rows, {}, None)
    [group] = statistics_by_group(axis_of(parameter(["only"])), rows.tasks, values)
    assert (group["mean"], (group["low"], group["high"])) == (0.25, wilson(25, 100))


def test_values_that_happen_to_be_0_or_1_are_no_rate() -> None:
    values = np.zeros(500)
    [group] = statistics_by_group(axis_of(parameter(["only"])), np.arange(500), values, declared_rate=False)
    assert (group["low"], group["high"]) == (0.0, 0.0)


def test_a_mean_of_a_single_task_has_no_interval() -> None:
    [group] = statistics_by_group(axis_of(parameter(["only"])), np.arange(1), np.array([22.8]), declared_rate=False)
    assert (group["mean"], group["low"], group["high"]) == (22.8, None, None)


def test_a_group_with_repetitions_has_the_interval_of_its_scenarios() -> None:
    generator = np.random.default_rng(4)
    made = parameter([("a", "b")[at % 2] for at in range(80)])
    tasks, covered = np.arange(80 * 6), 0
    for _ in range(200):
        values = np.tile(50 + 10 * generator.normal(size=80), 6) + 5 * generator.normal(size=480)
        groups = statistics_by_group(axis_of(made), tasks, values, False, None, ScenarioUnits(80))
        covered += sum(group["low"] <= 50 <= group["high"] for group in groups)
    assert 0.92 * 400 <= covered <= 0.98 * 400, "over tasks it covers 0.66"


def test_a_group_with_one_task_of_each_scenario_has_the_interval_of_its_tasks_to_the_last_bit() -> None:
    swept = Parameter("params.lag", "sweep", "number", np.array([0.0, 4.0]), 50, [0, 4])
    tasks, values = np.arange(100), np.random.default_rng(2).normal(size=100)
    groups = statistics_by_group(axis_of(swept), tasks, values, False, None, ScenarioUnits(50))
    assert groups == statistics_by_group(axis_of(swept), tasks, values, False)


def test_few_tasks_of_a_group_have_the_interval_of_the_declared_range() -> None:
    values = np.array([100.0] * 11 + [0.0])
    [group] = statistics_by_group(axis_of(parameter(["only"])), np.arange(12), values, False, (0.0, 100.0))
    assert (group["low"], group["high"]) == bounded_interval(values, 0.0, 100.0)


def test_booleans_are_known_as_such() -> None:
    rows = rows_of([("ok", {"met": True, "mixed": True, "m": 1}), ("ok", {"met": None, "mixed": 1, "m": 0})])
    assert rows.booleans == rows.since(1).booleans == {"met"}


def test_a_number_with_many_values_is_divided_into_bins() -> None:
    made = parameter([number / 7 for number in range(1000)])
    axis = axis_of(made)
    assert 2 <= len(axis) <= NUMBERS and not axis.values
    rows = rows_of([("ok", {"m": task}) for task in range(1000)])
    groups = statistics_by_group(axis, rows.tasks, metric_values("m", rows, {}, None))
    assert sum(group["count"] for group in groups) == 1000
    assert all(group["from"] <= group["mean"] / 7 <= group["to"] for group in groups if group["count"])


def test_values_beyond_the_limit_are_one_group() -> None:
    made = parameter([f"street {number}" for number in range(VALUES + 50)])
    rows = rows_of([("ok", {"m": 1})] * (VALUES + 50))
    groups = statistics_by_group(axis_of(made), rows.tasks, metric_values("m", rows, {}, None))
    assert len(groups) == VALUES and groups[-1]["value"] == OTHERS and groups[-1]["count"] == 51


def test_failures_depend_on_a_parameter_like_a_metric() -> None:
    rows = rows_of([("ok", {"outcome": "arrived"}), ("ok", {"outcome": "collision"}), ("crashed", {})] * 4)
    failure = DeclaredFailure("outcome", ("collision",))
    groups = statistics_by_group(
        axis_of(parameter(["a", "b", "c"])), rows.tasks, metric_values("failed", rows, {}, failure)
    )
    assert [(group["value"], group["mean"]) for group in groups] == [("a", 0), ("b", 1), ("c", 1)]


def test_a_metric_of_texts_has_counts_by_group() -> None:
    rows = rows_of([("ok", {"outcome": "arrived"}), ("ok", {"outcome": "fell"}), ("crashed", {"outcome": "x"})] * 2)
    groups = outcomes_by_group(axis_of(parameter(["a", "a", "b"])), rows, "outcome")
    assert groups == [
        {"value": "a", "count": 4, "values": {"arrived": 2, "fell": 2}},
        {"value": "b", "count": 0, "values": {}},
    ]
    assert outcomes_by_group(axis_of(parameter(["a"])), rows, "kind") == [{"value": "a", "count": 0, "values": {}}]


def test_a_value_that_stands_for_never_is_none() -> None:
    rows = rows_of([("ok", {"ttc": 2}), ("ok", {"ttc": 100}), ("crashed", {"ttc": 100})])
    assert metric_values("ttc", rows, {"ttc": 0.0}, None, {"ttc": 100.0}).tolist() == [
        2,
        pytest.approx(np.nan, nan_ok=True),
        0,
    ]


# -- points and cells


def test_points_are_a_repeatable_sample_of_tasks() -> None:
    made = parameter([float(number) for number in range(5000)])
    rows = rows_of([("ok", {"m": 2 * task}) for task in range(5000)])
    values = metric_values("m", rows, {}, None)
    chosen = points(made, rows, values)
    assert len(chosen["tasks"]) == POINTS and chosen["tasks"] == sorted(set(chosen["tasks"]))
    assert chosen["x"] == chosen["tasks"] and chosen["y"] == [2 * task for task in chosen["tasks"]]
    assert chosen == points(made, rows, values)
    fewer = points(made, rows, values, 100)
    assert set(fewer["tasks"]) < set(chosen["tasks"]) and 1500 < statistics.fmean(fewer["tasks"]) < 3500


@given(
    st.lists(st.tuples(st.sampled_from(["x", "y", None]), st.sampled_from([1, 2.5]), st.integers(0, 5)), max_size=30)
)
def test_cells_have_count_and_mean(results: list[tuple[str | None, float, int]]) -> None:
    if not any(first for first, _, _ in results):
        return
    rows = rows_of([("ok", {"m": metric}) for _, _, metric in results])
    first, second = (axis_of(parameter([result[at] for result in results])) for at in (0, 1))
    cells = heat_map(first, second, rows.tasks, metric_values("m", rows, {}, None))
    for row, value in enumerate(first.values):
        for column, number in enumerate(second.values):
            inside = [metric for a, b, metric in results if (a, b) == (value, number)]
            assert cells["counts"][row][column] == len(inside)
            assert cells["means"][row][column] == (pytest.approx(statistics.fmean(inside)) if inside else None)
