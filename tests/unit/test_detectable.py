"""What a comparison can show: the power at the smallest difference and at the smallest margin, simulated."""

from itertools import pairwise

import numpy as np
import pytest

from core.domain.alpha_spending import looks_of
from core.domain.claims import Claim, Design, Method
from core.domain.detectable import detectable
from core.domain.paired_test import PairedTest, TestPlan
from tests.unit.test_paired_test import differences

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
