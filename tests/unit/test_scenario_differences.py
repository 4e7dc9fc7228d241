"""Differences by scenario: means over repetitions and combinations, what is unknown, and the noise within scenarios."""

import math

import numpy as np
import pytest

from core.domain.comparisons.metric_scale import MetricScale
from core.domain.comparisons.scenario_differences import ScenarioDifferences, scenario_differences
from tests.declared_metrics import declared

SCALE = MetricScale.of(
    declared({"name": "score", "better": "higher", "low": 0.0, "high": 100.0, "worst": 0.0, "unit": "%"})
)
NAN = math.nan


def of(rows: list[tuple[int, str, float, float]], *, failed: tuple[int, ...] = ()) -> ScenarioDifferences:
    """Return the differences of rows of scenario, combination and both values; ``failed``: of both sides, by row."""
    ok = np.array([row not in failed for row in range(len(rows))])
    sides = [np.array([row[side] for row in rows]) for side in (2, 3)]
    scenarios = list(dict.fromkeys(row[0] for row in rows))
    return scenario_differences(
        scenarios, [row[0] for row in rows], [row[1] for row in rows], (sides[0], sides[1]), (ok, ok), SCALE
    )


def test_a_scenario_has_the_mean_over_its_repetitions() -> None:
    found = of([(4, "", 60, 50), (4, "", 40, 40), (2, "", 70, 80)])
    assert found.neutral.tolist() == [5, -10] and found.tasks == 3 and not found.repeated


def test_a_combination_counts_once_however_often_it_was_repeated() -> None:
    found = of([(1, "a", 60, 50), (1, "a", 60, 50), (1, "a", 60, 50), (1, "b", 50, 50)])
    assert found.neutral.tolist() == [5]


def test_the_noise_within_a_scenario_is_the_variance_of_its_mean() -> None:
    found = of([(1, "", 60, 50), (1, "", 70, 50), (2, "", 50, 50), (2, "", 50, 50)])
    assert found.repeated and found.within.tolist() == pytest.approx([25, 0])


def test_a_pair_that_says_nothing_is_no_difference_or_the_worst_on_either_side() -> None:
    found = of([(1, "", NAN, 50), (2, "", NAN, NAN), (3, "", 60, 50)], failed=(1,))
    assert found.unknown == 2
    assert found.neutral.tolist() == [0, 0, 10]
    assert found.lowest.tolist() == [-100, -100, 10] and found.highest.tolist() == [100, 100, 10]


def test_a_task_that_failed_beside_one_that_did_not_is_the_worst_value() -> None:
    ok = np.array([False]), np.array([True])
    found = scenario_differences([7], [7], [""], (np.array([NAN]), np.array([80.0])), ok, SCALE)
    assert (found.neutral.tolist(), found.lowest.tolist(), found.unknown) == ([-80], [-80], 0)
