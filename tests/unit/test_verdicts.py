"""Verdicts of groups of scenarios: e-BH, suspects, words."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from core.domain.metric_scale import MetricScale
from core.domain.sequential_test import Decision, Plan, SequentialTest
from core.domain.verdicts import Verdict, accepted_claims, group_sentence, group_verdicts, sentence

SCORE = MetricScale.of({"name": "score", "unit": "points", "better": "higher", "low": 0.0, "high": 1.0})
SIGN = MetricScale.of({"name": "gap", "unit": "m", "better": "lower"})


def played(differences: list[float], pairs: int | None = None) -> SequentialTest:
    return SequentialTest(plan=Plan(bound=1.0, pairs=pairs)).extend(differences)


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
    _, worse = weak.log_evidence
    assert math.log(40) < worse < math.log(400)
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
        plan = Plan(bound=1.0, resolution=10)
        tests = {str(at): SequentialTest(plan=plan).extend(row.clip(-1, 1)) for at, row in enumerate(rows)}
        kinds = [verdict.verdict for verdict in group_verdicts(tests)]
        wrong += any(kind in (Verdict.REGRESSED, Verdict.IMPROVED) for kind in kinds)
        suspects += kinds.count(Verdict.SUSPECT)
    assert wrong <= scipy.stats.binom.ppf(1 - 1e-6, repetitions, 0.05)
    assert suspects / (repetitions * groups) < 0.15


def test_no_groups_have_no_verdicts() -> None:
    assert group_verdicts({}) == []


def words(differences: list[float], scale: MetricScale = SCORE, pairs: int | None = None) -> str:
    return sentence(played(differences, pairs), scale, metric="score", first="new", second="old", pairs=pairs or 100)


def test_a_decision_is_said_with_its_interval_and_its_error_rate() -> None:
    assert words([1.0, 0.0] * 20) == (
        "new is better than old in score by 0.5 points (95 % interval 0.24 to 0.744 points), after 40 of 100 pairs"
        " (error rate 5 %)."
    )


def test_a_worse_model_is_said_to_be_worse_by_a_positive_number() -> None:
    assert words([-1.0, 0.0] * 20).startswith("new is worse than old in score by 0.5 points (95 % interval ")


def test_an_undecided_comparison_names_the_difference_that_it_would_have_shown() -> None:
    text = words([0.2, -0.2] * 40)
    assert text.startswith("Undecided between new and old after 80 of 100 pairs: the difference in score is 0 points (")
    assert text.endswith(" points would have been shown with 80 % power.")


def test_a_complete_list_is_known_without_an_interval() -> None:
    assert words([0.1, 0.2], pairs=2) == "new is better than old in score by 0.15 points, after 2 of 2 pairs (known)."
    assert words([0.1, -0.1], pairs=2) == "new and old have the same mean score on all 2 pairs."


def test_differences_by_sign_are_shares_of_the_pairs() -> None:
    assert "by 50 % of the pairs (95 % interval " in words([1.0, 0.0] * 20, SIGN)


def test_no_pair_is_said_to_be_none() -> None:
    assert words([]) == "No pair of new and old was played."


def test_each_verdict_on_a_group_is_a_sentence() -> None:
    tests = {
        "ramp": played([-1.0, 0.0] * 40),
        "town": played([0.1, -0.1] * 40),
        "tunnel": played([-1.0] * 4 + [0.0] * 30),
        "farm": played([]),
        "bridge": played([0.0, 0.1]),
    }
    texts = [group_sentence(verdict, SCORE, groups=len(tests)) for verdict in group_verdicts(tests)]
    assert texts[0].startswith("ramp: regressed; worse by 0.5 points (95 % interval ") and "; 80 pairs)." in texts[0]
    assert texts[1].startswith("town: held; no difference was shown in 80 pairs; a difference of 0.")
    assert texts[2].endswith("; 34 pairs), which is not enough among 5 groups.")
    assert texts[3] == "farm: no pair was played."
    assert texts[4] == "bridge: held; no difference was shown in 2 pairs, too few for any."
