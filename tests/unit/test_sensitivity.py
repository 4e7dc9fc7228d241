"""Sensitivity to parameters: columns of any kind, effects, bins, worst combinations."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.results.intervals import wilson
from core.domain.results.parameter_columns import LEVELS, OTHERS, Levels, Numbers, binned, column_of, distinct_columns
from core.domain.results.scenario_intervals import values_by_unit
from core.domain.results.sensitivity import BINS, EffectKind, failure_sensitivities, metric_sensitivities
from core.domain.results.worst_combinations import FEWEST, worst_combinations

Columns = dict[str, Any]


def street(count: int = 2000, seed: int = 1) -> tuple[Columns, np.ndarray]:
    """Return parameters, and failures that depend on the speed, on rain, and on ramps at night."""
    rng = np.random.default_rng(seed)
    columns: Columns = {
        "speed": rng.uniform(5, 30, count),
        "weather": [("sun", "fog", "rain")[at] for at in rng.integers(0, 3, count)],
        "night": (rng.random(count) < 0.5).tolist(),
        "street": [("grid", "ramp", "town", "farm")[at] for at in rng.integers(0, 4, count)],
        "noise": rng.normal(size=count).tolist(),
    }
    rain = np.array(columns["weather"]) == "rain"
    dark_ramp = (np.array(columns["street"]) == "ramp") & np.array(columns["night"])
    probability = 0.02 + 0.3 * (columns["speed"] > 22) + 0.1 * rain + 0.5 * dark_ramp
    return columns, rng.random(count) < probability


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5, None], Numbers),
        (np.array([1, 2]), Numbers),
        (["a", None], Levels),
        ([True, False], Levels),
        (np.array([True, False]), Levels),
        ([1, "1"], Levels),
        ([[1, 2], [1, 3]], Levels),
        ([None, None], Levels),
    ],
)
def test_only_columns_of_nothing_but_numbers_are_numbers(values: Any, kind: type) -> None:
    assert isinstance(column_of(values), kind)
    assert column_of(column_of(values)).__class__ is kind


def test_rare_levels_count_together() -> None:
    column = column_of([f"level {at % 90}" for at in range(900)] + [None])
    assert isinstance(column, Levels) and len(column.names) == LEVELS and column.names[-1] == OTHERS
    assert column.codes[-1] == -1 and np.bincount(column.codes[:-1]).tolist() == [10] * (LEVELS - 1) + [410]


@given(st.lists(st.one_of(st.integers(-4, 4), st.floats(-9, 9), st.none()), min_size=1), st.integers(2, 9))
def test_bins_of_numbers_are_disjoint_and_ordered_and_contain_every_number(values: list[Any], most: int) -> None:
    column = column_of([*values, 1.5])
    assert isinstance(column, Numbers)
    bins = binned(column, most)
    assert len(bins.labels) == len(bins.edges) <= most
    assert all(before[1] < after[0] for before, after in zip(bins.edges, bins.edges[1:], strict=False))
    for value, code in zip(column.values.tolist(), bins.codes.tolist(), strict=True):
        assert (code == -1) == (value != value)
        if code >= 0:
            assert bins.edges[code][0] <= value <= bins.edges[code][1]


def test_many_different_numbers_are_in_bins_of_equal_counts() -> None:
    bins = binned(column_of(np.random.default_rng(2).normal(size=800)), 8)
    assert np.bincount(bins.codes).tolist() == [100] * 8


def test_the_parameters_that_cause_failures_come_before_the_others() -> None:
    columns, failed = street()
    ranked = failure_sensitivities(columns, failed)
    assert [item.parameter for item in ranked][:3] == ["speed", "street", "night"]
    assert ranked[-1].parameter == "noise" and ranked[-1].effect.low < 0 < ranked[-1].effect.high
    by_name = {item.parameter: item for item in ranked}
    assert by_name["speed"].kind is EffectKind.RANK_BISERIAL and by_name["speed"].effect.low > 0.2
    assert (by_name["street"].kind, by_name["street"].level) == (EffectKind.RATE_DIFFERENCE, "ramp")
    assert by_name["night"].level in ("true", "false") and by_name["weather"].level == "rain"


def test_bins_have_failure_rates_with_wilsons_intervals() -> None:
    columns, failed = street()
    (weather,) = failure_sensitivities({"weather": columns["weather"]}, failed)
    rain = next(item for item in weather.bins if item.label == "rain")
    in_rain = np.array(columns["weather"]) == "rain"
    assert (rain.count, rain.value) == (in_rain.sum(), failed[in_rain].mean())
    assert (rain.low, rain.high) == wilson(int(failed[in_rain].sum()), int(in_rain.sum()))
    (speed,) = failure_sensitivities({"speed": columns["speed"]}, failed)
    assert len(speed.bins) == BINS and speed.bins[0].least == columns["speed"].min()


def test_an_effect_that_is_not_monotone_has_an_association() -> None:
    gap = np.linspace(-1, 1, 1000)
    (single,) = failure_sensitivities({"gap": gap}, np.abs(gap) > 0.8)
    assert abs(single.effect.value) < 0.01 and single.association > 0.8


def test_parameters_without_two_values_or_two_outcomes_are_left_out() -> None:
    assert failure_sensitivities({"a": [1, 1, 1], "b": [None] * 3, "c": ["x"] * 3}, [True, False, True]) == []
    assert failure_sensitivities({"a": [1, 2, 3]}, [True] * 3) == [] == failure_sensitivities({"a": []}, [])
    assert failure_sensitivities({"rare": ["x", "y", "y"]}, [True, False, True]) == []  # below five results each
    assert metric_sensitivities({"a": [1, 1, 1, 1, 1]}, [1.0, 2, 3, 4, 5]) == []


def test_results_without_the_parameter_are_counted_and_change_nothing() -> None:
    columns, failed = street(400)
    (whole,) = failure_sensitivities({"speed": columns["speed"]}, failed)
    (with_missing,) = failure_sensitivities(
        {"speed": [*columns["speed"].tolist(), None, None]}, [*failed.tolist(), True, False]
    )
    assert with_missing.missing == 2
    assert (with_missing.effect, with_missing.bins) == (whole.effect, whole.bins)


def test_a_metric_has_correlations_and_shares_of_its_variance() -> None:
    columns, _ = street()
    metric = columns["speed"] + 10.0 * np.array(columns["night"]) + np.random.default_rng(3).normal(0, 3, 2000)
    metric[:5] = np.nan
    ranked = metric_sensitivities(columns | {"none": [None] * 2000}, metric)
    assert [item.parameter for item in ranked][:2] == ["speed", "night"]
    speed, night = ranked[:2]
    assert speed.kind is EffectKind.SPEARMAN and 0.6 < speed.effect.low < speed.effect.high < 0.95
    assert night.kind is EffectKind.EPSILON_SQUARED and 0.2 < night.effect.low < night.effect.high < 0.4
    dark = next(item for item in night.bins if item.label == "true")
    assert dark.value == pytest.approx(metric[5:][np.array(columns["night"])[5:]].mean()) and dark.low < dark.value


def test_the_worst_combination_is_the_one_that_causes_failures() -> None:
    columns, failed = street()
    worst = worst_combinations(columns, failed).worst
    assert worst[0].values == {"night": "true", "street": "ramp"} and len(worst) == 20
    chosen = np.array(columns["night"]) & (np.array(columns["street"]) == "ramp")
    assert (worst[0].count, worst[0].failures) == (chosen.sum(), failed[chosen].sum())
    assert worst[0].low < worst[0].rate < worst[0].high
    assert [item.low for item in worst] == sorted((item.low for item in worst), reverse=True)


def counted(columns: Columns, failed: np.ndarray, fewest: int) -> dict[tuple[tuple[str, str], ...], tuple[int, int]]:
    """Return counts and failures of all values and pairs, one by one."""
    tables = {name: binned(column_of(values), 5) for name, values in columns.items()}
    members = {
        (name, label): table.codes == at
        for name, table in tables.items()
        for at, label in enumerate(table.labels)
        if label != OTHERS and len(table.labels) > 1
    }
    sets = {(key,): rows for key, rows in members.items()}
    for first, rows in members.items():
        for second, others in members.items():
            both = rows & others
            if list(columns).index(first[0]) < list(columns).index(second[0]) and both.sum() < min(
                rows.sum(), others.sum()
            ):
                sets[first, second] = both
    counts = {key: (int(rows.sum()), int((rows & failed).sum())) for key, rows in sets.items()}
    return {key: (count, failures) for key, (count, failures) in counts.items() if count >= fewest and failures}


@pytest.mark.parametrize("count", [1, 7, 64, 65, 300])
def test_the_table_has_every_value_and_pair_with_enough_results(count: int) -> None:
    columns, failed = street(count, seed=count)
    columns["speed"] = [None if at % 7 == 0 else value for at, value in enumerate(columns["speed"])]
    rows = worst_combinations(columns, failed, rows=10_000).worst
    expected = counted(columns, failed, FEWEST)
    assert {tuple(row.values.items()): (row.count, row.failures) for row in rows} == expected


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ([2, 3, 4, 2], [20, 30, 40, 20], True),
        ([2, 3, 4, 2], [40, 30, 20, 40], False),  # the other way round
        ([2, 3, 4, 2], [2, 3, 3, 2], False),
        ([2, None, 4, 4], [1.5, None, 9, 9], True),
        ([2, None, 4, 4], [1.5, 1.5, 9, 9], False),
        (["a", "b", "b", None], ["x", "y", "y", None], True),
        (["a", "b", "b", "b"], ["y", "x", "x", "x"], True),
        (["a", "b", "b", "a"], ["x", "y", "y", "y"], False),
        (["a", "b", "b", "a"], [1, 2, 2, 1], False),  # numbers have an order
    ],
)
def test_parameters_that_tell_the_same_results_apart_are_aliases(first: Any, second: Any, same: bool) -> None:
    columns = {"first": column_of(first), "second": column_of(second)}
    assert distinct_columns(columns) == ({"first": ("second",)} if same else {"first": (), "second": ()})


def test_parameters_without_results_are_aliases() -> None:
    assert distinct_columns({"a": column_of([]), "b": column_of([])}) == {"a": ("b",)}


def test_without_failures_or_parameters_no_combination_is_bad() -> None:
    columns, failed = street(50)
    assert worst_combinations(columns, np.zeros(50, np.bool_)).worst == [] == worst_combinations({}, failed).worst


# -- the largest of many, and scenarios with several tasks

LEVELS_OF_NOISE = [(6, 48, 0.1), (6, 48, 0.3), (20, 15, 0.1), (50, 6, 0.05)]


@pytest.mark.parametrize(("levels", "scenarios", "rate"), LEVELS_OF_NOISE)
def test_the_worst_of_equal_levels_is_seldom_called_different(levels: int, scenarios: int, rate: float) -> None:
    generator = np.random.default_rng(levels)
    column = Levels(np.repeat(np.arange(levels), scenarios), tuple(map(str, range(levels))))
    wrong = 0
    for _ in range(100):
        failed = generator.random(levels * scenarios) < rate
        for found in failure_sensitivities({"street": column}, failed):
            assert found.picked_from == levels
            wrong += not found.effect.low <= 0 <= found.effect.high
    assert wrong <= 0.06 * 100, "25 % of six levels, and more of many"


def test_no_interval_of_the_worst_combinations_misses_a_rate_that_all_have() -> None:
    generator = np.random.default_rng(11)
    wrong = 0
    for _ in range(50):
        columns: Columns = {name: generator.integers(0, 5, 300).astype(str).tolist() for name in "abcdef"}
        found = worst_combinations(columns, generator.random(300) < 0.15)
        assert found.candidates > 300
        wrong += any(item.low > 0.15 or item.high < 0.15 for item in found.worst)
    assert wrong <= 2


def test_two_levels_are_one_difference() -> None:
    columns, failed = street(300)
    (night,) = failure_sensitivities({"night": columns["night"]}, failed)
    assert night.picked_from == 1


def repeated(scenarios: int, tasks: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the scenario of each task, a failure and a metric that depend on the scenario and on nothing else."""
    generator = np.random.default_rng(seed)
    units = np.tile(np.arange(scenarios), tasks)
    failed = generator.random(len(units)) < generator.beta(0.5, 1.5, scenarios)[units]
    return units, failed, generator.normal(size=scenarios)[units] + 0.5 * generator.normal(size=len(units))


def test_a_scenarios_parameter_that_does_nothing_has_an_effect_of_0_whatever_the_repetitions() -> None:
    wrong = {kind: 0 for kind in EffectKind if kind is not EffectKind.EPSILON_SQUARED}
    associations = []
    for seed in range(60):
        generator = np.random.default_rng(1000 + seed)
        units, failed, metric = repeated(60, 10, seed)
        columns: Columns = {
            "speed": generator.normal(size=60)[units],
            "street": Levels(generator.integers(0, 4, 60)[units], ("a", "b", "c", "d")),
        }
        found = failure_sensitivities(columns, failed, units) + metric_sensitivities(columns, metric, units)
        for item in found:
            associations.append(item.association)
            if item.kind in wrong:
                wrong[item.kind] += not item.effect.low <= 0 <= item.effect.high
    assert max(wrong.values()) <= 0.12 * 60, wrong
    assert np.median(associations) < 0.15


def test_the_bins_of_a_scenarios_parameter_have_the_intervals_of_scenarios() -> None:
    units, failed, metric = repeated(60, 10, 3)
    column = Levels((units % 2).astype(np.int64), ("even", "odd"))
    (of_failure,) = failure_sensitivities({"side": column}, failed, units)
    (of_metric,) = metric_sensitivities({"side": column}, metric, units)
    own = units % 2 == 0
    values = values_by_unit(units[own], failed[own].astype(float))
    assert of_failure.bins[0].count == 300 and of_failure.bins[0].value == pytest.approx(values.mean)
    assert (of_failure.bins[0].low, of_failure.bins[0].high) == values.interval(rate=True, bounds=None)
    expected = values_by_unit(units[own], metric[own]).interval(rate=False, bounds=None)
    assert (of_metric.bins[0].low, of_metric.bins[0].high) == expected


def swept(scenarios: int, lags: int, effect: float, seed: int) -> tuple[Columns, np.ndarray, np.ndarray, np.ndarray]:
    """Return a swept number and level, scenarios, failures and a metric, in which scenarios differ most."""
    generator = np.random.default_rng(seed)
    units = np.tile(np.arange(scenarios), lags)
    lag = np.repeat(np.arange(lags), scenarios)
    metric = 10 * generator.normal(size=scenarios)[units] + effect * lag + generator.normal(size=len(units))
    probability = np.clip(generator.beta(0.3, 0.7, scenarios)[units] + effect * lag / 20, 0, 1)
    columns = {"lag": lag.astype(float), "mode": Levels(lag, tuple("abcdefgh"[:lags]))}
    return columns, units, generator.random(len(units)) < probability, metric


def test_a_swept_parameter_is_compared_within_scenarios() -> None:
    columns, units, failed, metric = swept(60, 4, 1.0, 5)
    names = frozenset(columns)
    between = {item.parameter: item for item in metric_sensitivities(columns, metric, units)}
    within = {item.parameter: item for item in metric_sensitivities(columns, metric, units, names)}
    assert within["lag"].effect.value > 0.7 and within["lag"].effect.low > 0.6 and within["lag"].association > 0.7
    assert within["mode"].effect.low > 0.5 and between["mode"].effect.value < 0.2, "scenarios differ more than modes"
    failures = {item.parameter: item for item in failure_sensitivities(columns, failed, units, names)}
    assert failures["lag"].effect.value > 0.3 and failures["lag"].effect.low > 0
    assert failures["mode"].level in ("a", "d") and failures["mode"].picked_from == 4


@pytest.mark.parametrize("lags", [2, 4])
def test_a_swept_parameter_that_does_nothing_has_an_effect_of_0(lags: int) -> None:
    wrong = {kind: 0 for kind in EffectKind if kind is not EffectKind.EPSILON_SQUARED}
    for seed in range(60):
        columns, units, failed, metric = swept(40, lags, 0.0, seed)
        names = frozenset(columns)
        found = failure_sensitivities(columns, failed, units, names)
        for item in found + metric_sensitivities(columns, metric, units, names):
            if item.kind in wrong:
                wrong[item.kind] += not item.effect.low <= 0 <= item.effect.high
    assert max(wrong.values()) <= 0.12 * 60, wrong


def test_scenarios_without_a_result_of_each_value_are_not_compared() -> None:
    columns, units, _, metric = swept(40, 2, 1.0, 1)
    first = np.arange(len(units)) < 60  # the second value was played in 20 of 40 scenarios
    part = {"lag": columns["lag"][first]}
    (some,) = metric_sensitivities(part, metric[first], units[first], frozenset(part))
    both = first & (units < 20)
    part = {"lag": columns["lag"][both]}
    (complete,) = metric_sensitivities(part, metric[both], units[both], frozenset(part))
    assert (some.effect, some.association) == (complete.effect, complete.association)


def test_a_combination_counts_its_scenarios() -> None:
    units = np.tile(np.arange(40), 10)
    columns: Columns = {"side": Levels((units % 8 == 0).astype(np.int64), ("rest", "eighth"))}
    failed = units % 8 == 0
    alone = worst_combinations(columns, failed, units).worst[0]
    single = worst_combinations({"side": Levels(columns["side"].codes[:40], ("rest", "eighth"))}, failed[:40]).worst[0]
    assert (alone.count, alone.low, alone.high) == (50, single.low, single.high)
