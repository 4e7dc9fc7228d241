"""Test of paired differences: claims and their overlap, margins, errors of the joined test, lists, what is unknown."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from statistics import NormalDist

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from core.domain.comparisons.alpha_spending import looks_of
from core.domain.comparisons.claims import Claim, Decision, Design, Fact, Method, is_over
from core.domain.comparisons.paired_test import PairedTest, TestPlan
from core.domain.comparisons.scenario_differences import ScenarioDifferences

Floats = NDArray[np.float64]


def differences(
    neutral: Floats, *, unknown: Floats | None = None, within: float = 0.0, repeated: bool = False
) -> ScenarioDifferences:
    """Return differences as shares of a bound of 1; ``unknown``: 1 for a scenario without a result."""
    missing = np.zeros(len(neutral)) if unknown is None else unknown
    return ScenarioDifferences(
        neutral=np.where(missing > 0, 0.0, neutral),
        lowest=np.where(missing > 0, -1.0, neutral),
        highest=np.where(missing > 0, 1.0, neutral),
        within=np.full(len(neutral), within),
        repeated=repeated,
        tasks=len(neutral),
        clipped=0,
        unknown=int(missing.sum()),
    )


def played(plan: TestPlan, values: Floats, **members: object) -> PairedTest:
    """Return the test after every look, stored and restored between them."""
    test = PairedTest.begin(plan, resolution=10)
    missing = members.pop("unknown", None)
    for start, end in pairwise((0, *looks_of(len(values)))):
        part = None if missing is None else missing[start:end]  # type: ignore[index]
        test = msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(test), allow_nan=False)), PairedTest)
        test = test.extend(differences(values[start:end], unknown=part, **members))  # type: ignore[arg-type]
    return test


def plan(scenarios: int, **members: object) -> TestPlan:
    return TestPlan(bound=1.0, scenarios=scenarios, **({"margin": 0.02} | members))  # type: ignore[arg-type]


VALUES = st.lists(st.one_of(st.sampled_from([-1.0, 0.0, 1.0, 0.01]), st.floats(-1, 1)), min_size=2, max_size=60).map(
    np.array
)


@given(VALUES, st.sampled_from(list(Design)), st.sampled_from(list(Method)), st.sampled_from([0.0, 0.02, 0.3]))
def test_claims_decision_and_interval_agree(values: Floats, design: Design, method: Method, margin: float) -> None:
    if design is Design.EXACT:
        method = Method.ANYTIME
    test = played(plan(len(values), design=design, method=method, margin=margin), values)
    claims, (low, high) = test.claims, test.interval
    assert -1 <= low <= high <= 1
    assert not claims[Claim.BETTER] or claims[Claim.NOT_WORSE]
    assert not (claims[Claim.BETTER] and not claims[Claim.WORSE]) or low >= 0
    assert not claims[Claim.EQUIVALENT] or (margin > 0 and claims[Claim.NOT_WORSE])
    assert margin > 0 or test.decision in (Decision.BETTER, Decision.WORSE, Decision.UNDECIDED)
    shown = [claim for claim in Claim if claims[claim]]
    assert test.decision.value == (shown[0].value if shown else "undecided")
    assert (test.decisive is None) == (not shown)


@given(VALUES, st.sampled_from([0.0, 0.02, 0.3]))
def test_swapping_the_models_mirrors_every_claim(values: Floats, margin: float) -> None:
    asked = plan(len(values), margin=margin)
    test, mirrored = played(asked, values), played(asked, -values)
    assert test.claims[Claim.BETTER] == mirrored.claims[Claim.WORSE]
    assert test.claims[Claim.EQUIVALENT] == mirrored.claims[Claim.EQUIVALENT]
    low, high = mirrored.interval
    assert test.interval == pytest.approx((-high, -low))


@given(VALUES)
def test_an_exact_list_is_known_at_its_end_and_a_mean_equal_to_the_margin_is_within_it(values: Floats) -> None:
    mean = float(values.mean())
    margin = abs(mean) if 1e-6 < abs(mean) < 0.99 else 0.995
    test = played(plan(len(values), design=Design.EXACT, method=Method.ANYTIME, margin=margin), values)
    assert test.interval == pytest.approx((mean, mean), abs=1e-9)
    assert test.claims[Claim.EQUIVALENT] == (abs(mean) <= margin)
    if abs(mean) > 1e-9:
        assert Fact.ABOVE_ZERO in test.facts if mean > 0 else Fact.BELOW_ZERO in test.facts


def test_equal_noisy_models_are_equivalent_and_not_better_or_worse_by_chance() -> None:
    generator = np.random.default_rng(1)
    decisions = [
        played(plan(288, margin=0.055, design=Design.POPULATION), generator.normal(0, 0.2, 288).clip(-1, 1)).decision
        for _ in range(40)
    ]
    assert decisions.count(Decision.EQUIVALENT) >= 32
    assert sum(decision in (Decision.BETTER, Decision.WORSE) for decision in decisions) <= 5


def test_differences_that_are_all_0_after_16_scenarios_are_not_yet_equivalent() -> None:
    few = PairedTest.begin(plan(288)).extend(differences(np.zeros(16)))
    assert few.decision is Decision.UNDECIDED
    assert played(plan(288), np.zeros(288)).decision is Decision.EQUIVALENT


@pytest.mark.parametrize("method", [Method.JOINED, Method.ANYTIME])
def test_a_small_gain_is_not_better_before_a_rare_crash_could_have_been_seen(method: Method) -> None:
    gain = np.full(200, 0.9 * 0.01 / 0.99)
    assert Claim.BETTER not in {
        claim for claim, holds in played(plan(200, method=method), gain).claims.items() if holds
    }


def test_the_normal_method_is_wrong_there_which_is_why_it_has_to_be_named() -> None:
    generator, wrong = np.random.default_rng(2), {Method.NORMAL: 0, Method.JOINED: 0}
    for _ in range(40):
        values = np.where(generator.random(288) < 0.01, -0.9, generator.normal(0.9 * 0.01 / 0.99, 0.002, 288))
        for method in wrong:
            wrong[method] += played(plan(288, method=method), values).claims[Claim.BETTER]
    assert wrong[Method.NORMAL] >= 12 and wrong[Method.JOINED] <= 2


def test_models_that_fail_everywhere_are_undecided() -> None:
    test = played(plan(48, margin=0.5), np.zeros(48), unknown=np.ones(48))
    assert test.decision is Decision.UNDECIDED


def test_scenarios_without_a_result_are_no_evidence_of_equivalence() -> None:
    generator = np.random.default_rng(3)
    values = generator.normal(0, 0.05, 288).clip(-1, 1)
    missing = (generator.random(288) < 0.1).astype(np.float64)
    assert played(plan(288, margin=0.05), values).claims[Claim.EQUIVALENT]
    without = played(plan(288, margin=0.05), values, unknown=missing)
    assert not without.claims[Claim.EQUIVALENT] and not without.claims[Claim.NOT_WORSE]


def test_a_repeated_list_is_judged_by_the_noise_within_its_scenarios() -> None:
    """Deviation between scenarios of 20, noise of a repetition of 3: the half-width is .25 instead of 2.3 points."""
    generator = np.random.default_rng(4)
    values = (generator.normal(0, 0.2, 288) + generator.normal(0, 0.03 / math.sqrt(2), 288)).clip(-1, 1)
    within = 0.03**2 / 2
    low, high = played(plan(288, design=Design.LIST), values, within=within, repeated=True).interval
    assert (high - low) / 2 == pytest.approx(2.1 * math.sqrt(within / 288), rel=0.1)
    once = played(plan(288, design=Design.LIST), values).interval
    assert once == played(plan(288), values).interval, "the noise of a scenario that was played once is not known"


def test_a_list_of_equal_noisy_models_is_not_decided_by_its_noise() -> None:
    generator, wrong = np.random.default_rng(5), 0
    for _ in range(60):
        noise = generator.normal(0, 0.1, (48, 2))
        expected = generator.normal(0, 0.2, 48)
        values = (expected - expected.mean() + noise.mean(axis=1)).clip(-1, 1)  # the mean of what is expected is 0
        test = PairedTest.begin(plan(48, design=Design.LIST), resolution=5)
        within = noise.var(axis=1, ddof=1) / 2
        for start, end in pairwise((0, *looks_of(48))):
            part = differences(values[start:end], repeated=True)
            test = test.extend(replace(part, within=within[start:end]))
        wrong += test.decision in (Decision.BETTER, Decision.WORSE)
    assert wrong <= 8


@given(VALUES)
def test_the_order_of_the_pairs_of_two_simulations_does_not_matter(values: Floats) -> None:
    asked = plan(len(values), standing=True, ended=False)
    ordered, shuffled = (
        PairedTest.begin(asked, resolution=0).extend(differences(part)) for part in (values, values[::-1].copy())
    )
    assert ordered.facts == shuffled.facts and ordered.interval == pytest.approx(shuffled.interval)


def test_two_simulations_have_one_look_once_both_have_ended() -> None:
    noise = np.array([NormalDist(0, 0.2).inv_cdf((at + 0.5) / 288) for at in range(288)])
    tests = [
        PairedTest.begin(plan(288, standing=True, ended=ended), resolution=0).extend(differences(noise + 0.035))
        for ended in (False, True)
    ]
    assert [test.claims[Claim.BETTER] for test in tests] == [False, True]


def test_one_scenario_decides_nothing() -> None:
    for design in (Design.POPULATION, Design.LIST):
        test = PairedTest.begin(plan(1, design=design, standing=True), resolution=0).extend(differences(np.ones(1)))
        assert test.decision is Decision.UNDECIDED


@pytest.mark.parametrize(
    ("until", "mean", "over"),
    [
        (None, 0.0, True),
        (None, 0.3, True),
        (Claim.BETTER, 0.0, False),
        (Claim.BETTER, 0.3, True),
        (Claim.BETTER, -0.3, True),
        (Claim.NOT_WORSE, -0.08, False),
        (Claim.EQUIVALENT, 0.08, False),
        (Claim.EQUIVALENT, 0.3, True),
        (Claim.NOT_WORSE, -0.3, True),
    ],
)
def test_a_comparison_goes_on_until_the_claim_that_is_asked_for_is_shown_or_refuted(
    until: Claim | None, mean: float, over: bool
) -> None:
    noise = np.array([NormalDist(0, 0.35).inv_cdf((at + 0.5) / 288) for at in range(288)])
    values = mean + np.random.default_rng(7).permutation(noise)
    test = played(plan(288, margin=0.1), values.clip(-1, 1))
    assert is_over(test.decision, test.claims, test.refuted, until) == over
