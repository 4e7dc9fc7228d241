"""What a comparison can show: the power at the smallest difference and at the smallest margin, simulated."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from core.domain.comparisons.alpha_spending import look_levels, looks_of
from core.domain.comparisons.claims import Claim, Design, Method
from core.domain.comparisons.detectable import LEAST_OF_MANY, LEAST_SHARE, MANY, detectable, rounded_up
from core.domain.comparisons.paired_test import PairedTest, TestPlan
from tests.unit.test_paired_test import Floats, differences

REPETITIONS = 60


def plan(**members: object) -> TestPlan:
    return TestPlan(bound=1.0, scenarios=288, **members)  # type: ignore[arg-type]


def shown(asked: TestPlan, mean: float, claim: Claim) -> float:
    """Return how often a claim is shown of normal differences with a deviation of .2."""
    generator, count = np.random.default_rng(8), 0
    for _ in range(REPETITIONS):
        values, test = generator.normal(mean, 0.2, 288).clip(-1, 1), PairedTest.begin(asked, resolution=0)
        for start, end in pairwise((0, *looks_of(288))):
            test = test.extend(differences(values[start:end]))
        count += test.claims[claim]
    return count / REPETITIONS


def test_equal_models_end_equivalent_at_the_smallest_margin_with_80_percent_power() -> None:
    values = np.random.default_rng(9).normal(0, 0.2, 288).clip(-1, 1)
    test = PairedTest.begin(plan(margin=0.02), resolution=0).extend(differences(values))
    found = detectable(test)
    assert found.margin is not None and found.scenarios is not None and found.scenarios > 288
    assert 0.65 <= shown(plan(margin=found.margin), 0.0, Claim.EQUIVALENT) <= 0.95


def test_the_smallest_difference_is_shown_with_80_percent_power() -> None:
    values = np.random.default_rng(9).normal(0, 0.2, 288).clip(-1, 1)
    found = detectable(PairedTest.begin(plan(), resolution=0).extend(differences(values)))
    assert found.difference is not None and found.scenarios is None
    assert 0.65 <= shown(plan(), found.difference, Claim.BETTER) <= 0.95


@pytest.mark.parametrize("method", list(Method))
def test_more_noise_can_show_less(method: Method) -> None:
    margins = []
    for deviation in (0.05, 0.2):
        values = np.random.default_rng(9).normal(0, deviation, 288).clip(-1, 1)
        found = detectable(PairedTest.begin(plan(margin=0.02, method=method), resolution=0).extend(differences(values)))
        margins.append(found.margin)
    assert margins[0] is not None and margins[1] is not None and margins[0] < margins[1]


def test_of_an_exact_list_and_of_one_scenario_nothing_is_said() -> None:
    exact = PairedTest.begin(plan(design=Design.EXACT, method=Method.ANYTIME)).extend(differences(np.zeros(16)))
    assert detectable(exact).difference is None
    assert detectable(PairedTest.begin(plan()).extend(differences(np.ones(1)))).margin is None


def ended(values: Floats, unknown: Floats | None = None, **members: object) -> PairedTest:
    """Return the test of two simulations that have ended, with these differences."""
    asked = TestPlan(bound=500.0, scenarios=len(values), standing=True, **members)  # type: ignore[arg-type]
    part = differences(values, unknown=unknown)
    scaled = replace(part, neutral=part.neutral * 500, lowest=part.lowest * 500, highest=part.highest * 500)
    return PairedTest.begin(asked, resolution=0).extend(scaled)


@pytest.mark.parametrize("count", [20, 60, 194, 204, 208, 288])
def test_copies_are_equivalent_at_the_margin_and_with_the_scenarios_that_are_named(count: int) -> None:
    copies = ended(np.zeros(count), margin=10.0)
    found = detectable(copies)
    assert found.margin is not None and found.scenarios is not None
    assert ended(np.zeros(count), margin=found.margin).claims[Claim.EQUIVALENT]
    assert ended(np.zeros(found.scenarios), margin=10.0).claims[Claim.EQUIVALENT]
    assert (found.scenarios <= count) == copies.claims[Claim.EQUIVALENT] or abs(found.scenarios - count) <= count // 50


def test_pairs_without_a_result_widen_the_interval_and_the_margin() -> None:
    unknown = (np.arange(100) < 27).astype(np.float64)
    test = ended(np.zeros(100), unknown, margin=50.0)
    low, high = test.interval
    assert low < -135 and high > 135 and not test.claims[Claim.EQUIVALENT]
    found = detectable(test)
    assert found.margin is not None and found.scenarios is None
    assert ended(np.zeros(100), unknown, margin=found.margin).claims[Claim.EQUIVALENT]


def test_models_without_any_result_would_be_equivalent_at_no_margin() -> None:
    found = detectable(ended(np.zeros(100), np.ones(100), margin=50.0))
    assert (found.margin, found.scenarios) == (None, None)


@pytest.mark.parametrize("count", [2, 5, 8, 10, 16])
def test_a_difference_that_would_be_shown_is_larger_than_one_that_was_not(count: int) -> None:
    for difference in np.linspace(0.05, 0.95, 19):
        test = ended(np.full(count, difference))
        found = detectable(test)
        if not test.claims[Claim.BETTER]:
            assert found.difference is None or found.difference >= test.mean
        else:
            assert found.difference is not None and found.difference <= test.mean * 1.01


def test_differences_without_a_variance_say_nothing_about_one() -> None:
    normal, joined = (ended(np.zeros(100), margin=10.0, method=method) for method in (Method.NORMAL, Method.JOINED))
    assert detectable(normal).margin is not None and detectable(normal).margin == pytest.approx(
        detectable(joined).margin, rel=0.1
    )


@pytest.mark.parametrize(("value", "shown"), [(7.1681, 7.17), (7.17, 7.17), (0.0371234, 0.0372), (1234.5, 1240.0)])
def test_what_is_named_is_rounded_up(value: float, shown: float) -> None:
    assert rounded_up(value) == pytest.approx(shown, rel=1e-12)


@pytest.mark.parametrize("scenarios", [48, 288, 5000, 20_000, 300_000])
def test_the_last_look_has_at_least_the_level_that_is_reckoned_with(scenarios: int) -> None:
    share = LEAST_SHARE if scenarios <= MANY else LEAST_OF_MANY
    assert look_levels(looks_of(scenarios), 0.02)[-1] >= share * 0.02


@pytest.mark.parametrize("scenarios", [60, 150, 288])
def test_the_scenarios_that_are_named_do_also_where_batches_are_looked_at(scenarios: int) -> None:
    asked = TestPlan(bound=1.0, scenarios=scenarios, margin=0.02)
    found = detectable(PairedTest.begin(asked, resolution=0).extend(differences(np.zeros(scenarios))))
    assert found.scenarios is not None
    test = PairedTest.begin(TestPlan(bound=1.0, scenarios=found.scenarios, margin=0.02), resolution=0)
    for start, end in pairwise((0, *looks_of(found.scenarios))):
        test = test.extend(differences(np.zeros(end - start)))
    assert test.claims[Claim.EQUIVALENT]
