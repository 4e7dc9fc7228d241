"""Verdicts of groups of scenarios: e-BH, suspects, words."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from core.domain.comparisons.claims import Decision
from core.domain.comparisons.confidence_sequence import Plan
from core.domain.comparisons.group_verdicts import (
    GroupEvidence,
    GroupTest,
    Verdict,
    accepted_claims,
    group_sentence,
    group_verdicts,
    standing_evidence,
)
from core.domain.comparisons.metric_scale import MetricScale
from tests.declared_metrics import declared

SCORE = MetricScale.of(declared({"name": "score", "unit": "points", "better": "higher", "low": 0.0, "high": 1.0}))


def played(differences: list[float], margin: float = 0.0) -> GroupEvidence:
    return GroupTest.begin(Plan(bound=1.0), margin).extend(np.array(differences)).evidence


def claims(e_values: list[float]) -> dict[tuple[str, Decision], float]:
    return {(str(at), Decision.BETTER): math.log(e_value) for at, e_value in enumerate(e_values)}


@pytest.mark.parametrize(
    ("e_values", "accepted"),
    [
        ([60.0, 9.0, 5.0, 0.5], 0),  # four claims at 5 %: 80, 40, 26.7 and 20 are needed
        ([80.0, 9.0, 5.0, 0.5], 1),
        ([60.0, 41.0, 5.0, 0.5], 2),
        ([30.0, 29.0, 27.0, 0.5], 3),
        ([30.0, 29.0, 26.0, 0.5], 0),
        ([20.0, 20.0, 20.0, 20.0], 4),
    ],
)
def test_e_bh_accepts_the_claims_whose_e_values_reach_the_line(e_values: list[float], accepted: int) -> None:
    assert accepted_claims(claims(e_values), 0.05) == {(str(at), Decision.BETTER) for at in range(accepted)}


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=30), st.floats(0.01, 0.5))
def test_e_bh_is_the_procedure_of_benjamini_and_hochberg_on_the_inverses(e_values: list[float], rate: float) -> None:
    """Wang and Ramdas 2022, section 4: 1 / e are p-values, and both procedures have one line."""
    p_values = [min(1.0, 1 / e_value) for e_value in e_values]
    adjusted = scipy.stats.false_discovery_control(p_values, method="bh")
    if (np.abs(adjusted / rate - 1) > 1e-9).all():  # not on the line itself
        rejected = {(str(at), Decision.BETTER) for at, value in enumerate(adjusted) if value <= rate}
        assert accepted_claims(claims(e_values), rate) == rejected


def test_each_kind_of_group_has_its_verdict() -> None:
    tests = {
        "ramp": played([-1.0, 0.0] * 40),
        "grid": played([1.0, 0.0] * 40),
        "town": played([0.1, -0.1] * 40),
        "tunnel": played([-1.0] * 4 + [0.0] * 30),
    }
    assert {verdict.group: verdict.verdict for verdict in group_verdicts(tests)} == {
        "ramp": Verdict.REGRESSED,
        "grid": Verdict.IMPROVED,
        "town": Verdict.HELD,
        "tunnel": Verdict.SUSPECT,
    }


def test_a_group_decided_by_itself_but_not_among_many_is_suspect() -> None:
    weak = played([-1.0] * 8)
    assert math.log(40) < weak.log_worse < math.log(400)
    alone = group_verdicts({"ramp": weak})
    among = group_verdicts({"ramp": weak} | {f"town {number}": played([0.0] * 9) for number in range(9)})
    assert (alone[0].verdict, among[0].verdict) == (Verdict.REGRESSED, Verdict.SUSPECT)


def test_swapping_the_models_swaps_regressed_and_improved() -> None:
    differences = {"ramp": [-1.0, 0.0] * 40, "grid": [1.0, 0.0] * 40, "town": [0.1, -0.1] * 40}
    swapped = {group: played([-value for value in row]) for group, row in differences.items()}
    assert [verdict.verdict for verdict in group_verdicts(swapped)] == [
        Verdict.IMPROVED,
        Verdict.REGRESSED,
        Verdict.HELD,
    ]


def test_false_verdicts_stay_rare_among_many_groups_however_their_results_depend_on_each_other() -> None:
    rng, repetitions, groups = np.random.default_rng(5), 150, 8
    wrong = suspects = 0
    for repetition in range(repetitions):
        common = rng.normal(0, 0.2, 60)  # half of the repetitions: all groups fail together
        rows = rng.normal(0, 0.2, (groups, 60)) + (common if repetition % 2 else 0)
        tests = {
            str(at): standing_evidence(row.clip(-1, 1), bound=1.0, margin=0.0, error_rate=0.05)
            for at, row in enumerate(rows)
        }
        kinds = [verdict.verdict for verdict in group_verdicts(tests)]
        wrong += any(kind in (Verdict.REGRESSED, Verdict.IMPROVED) for kind in kinds)
        suspects += kinds.count(Verdict.SUSPECT)
    assert wrong <= scipy.stats.binom.ppf(1 - 1e-6, repetitions, 0.05)
    assert suspects / (repetitions * groups) < 0.15


def test_no_groups_have_no_verdicts() -> None:
    assert group_verdicts({}) == []


def test_each_verdict_on_a_group_is_a_sentence() -> None:
    tests = {
        "ramp": played([-1.0, 0.0] * 40),
        "town": played([0.1, -0.1] * 40),
        "tunnel": played([-1.0] * 4 + [0.0] * 30),
        "farm": played([]),
        "bridge": played([0.0, 0.1]),
    }
    texts = [group_sentence(verdict, SCORE, groups=len(tests)) for verdict in group_verdicts(tests)]
    assert texts[0].startswith("ramp: regressed; worse by 0.5 points (95 % interval ") and texts[0].endswith(
        ", in 80 scenarios."
    )
    assert texts[1].startswith("town: held; no difference was shown in 80 scenarios; a difference of 0.")
    assert texts[2].endswith(", in 34 scenarios, which is not enough among 5 groups.")
    assert texts[3] == "farm: no scenario was played."
    assert texts[4] == "bridge: held; no difference was shown in 2 scenarios, too few for any."


def test_a_group_that_is_worse_by_less_than_the_margin_has_not_regressed() -> None:
    differences = np.random.default_rng(2).normal(-0.1, 0.1, 300).clip(-1, 1).tolist()
    kinds = [group_verdicts({"ramp": played(differences, margin)})[0].verdict for margin in (0.0, 0.05, 0.15)]
    assert kinds == [Verdict.REGRESSED, Verdict.REGRESSED, Verdict.HELD]
    sentence = group_sentence(group_verdicts({"ramp": played(differences, 0.05)})[0], SCORE, groups=1)
    assert sentence.startswith("ramp: regressed by more than 0.05 points; worse by 0.1")


def test_the_evidence_of_a_whole_sample_does_not_depend_on_its_order_and_is_that_of_the_batches() -> None:
    differences = np.random.default_rng(3).normal(0.1, 0.2, 80).clip(-1, 1)
    standing = standing_evidence(differences, bound=1.0, margin=0.02, error_rate=0.05)
    backwards = standing_evidence(differences[::-1], bound=1.0, margin=0.02, error_rate=0.05)
    running = played(differences.tolist(), 0.02)
    assert (standing.log_better, standing.log_worse) == pytest.approx((running.log_better, running.log_worse))
    assert (standing.log_better, standing.low, standing.high) == pytest.approx(
        (backwards.log_better, backwards.low, backwards.high)
    )
    assert standing.low <= standing.mean <= standing.high
