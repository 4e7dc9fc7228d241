"""Verdicts in words: each decision, its margin, its certainty, and what a reader has to know besides."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from core.domain.comparisons.claims import Design, Method
from core.domain.comparisons.metric_scale import MetricScale
from core.domain.comparisons.paired_test import PairedTest, TestPlan
from core.domain.comparisons.scenario_differences import ScenarioDifferences
from core.domain.comparisons.verdict_documents import VerdictContext, verdict_document
from tests.declared_metrics import declared
from tests.unit.test_paired_test import differences

SCORE = MetricScale.of(declared({"name": "score", "unit": "%", "better": "higher", "low": 0.0, "high": 100.0}))
SIGN = MetricScale.of(declared({"name": "gap", "unit": "m", "better": "lower"}))
EXACT = {"design": Design.EXACT, "method": Method.ANYTIME}


def scaled(part: ScenarioDifferences, bound: float) -> ScenarioDifferences:
    """Return differences in the metric's unit, of differences as shares of the bound."""
    return replace(part, neutral=part.neutral * bound, lowest=part.lowest * bound, highest=part.highest * bound)


def document(
    shares: list[float], scale: MetricScale = SCORE, *, scenarios: int | None = None, unknown: int = 0, **plan: Any
) -> dict[str, Any]:
    """Return the verdict on differences, as shares of the bound of the scale."""
    values = np.array(shares)
    asked = TestPlan(bound=scale.bound, scenarios=scenarios or len(shares), **plan)
    test = PairedTest.begin(asked)
    if shares:
        part = differences(values, unknown=(np.arange(len(values)) < unknown).astype(np.float64))
        test = test.extend(scaled(part, scale.bound))
    context = VerdictContext(
        metric="score", models=("new", "old"), tasks=len(shares), clipped=0, unknown=unknown, over=True
    )
    return verdict_document(test, scale, context)


def test_a_difference_of_percentages_is_said_in_points() -> None:
    found = document([0.5, 0.0] * 20, margin=2.0, scenarios=288)
    assert found["sentence"].startswith("new is better than old in score by 25 points (95 % interval ")
    assert found["sentence"].endswith(" points), after 40 of 288 scenarios (error rate 5 %).")
    assert found["scale"]["unit"] == "points" and found["biased"] and "overestimated" in found["message"]


def test_a_worse_model_is_said_to_be_worse_by_a_positive_number() -> None:
    assert "new is worse than old in score by 25 points (95 % interval " in document([-0.5, 0.0] * 20)["sentence"]


def test_equivalent_models_are_said_to_be_that_within_the_margin() -> None:
    found = document([0.01, -0.01] * 144, margin=3.0)
    assert found["decision"] == "equivalent" and found["claims"]["not_worse"]
    assert found["sentence"].startswith(
        "new is equivalent to old in score within 3 points: the difference is 0 points ("
    )
    assert found["p_better"] is not None and not found["biased"]


def test_a_model_that_is_not_worse_is_said_to_be_not_worse_by_the_margin() -> None:
    found = document([0.13, -0.1] * 144, margin=3.0)
    assert found["decision"] == "not_worse" and not found["claims"]["equivalent"]
    assert found["sentence"].startswith(
        "new is not worse than old in score by 3 points or more: the difference is 1.5 points ("
    )


def test_an_undecided_comparison_says_which_margin_and_how_many_scenarios_would_do() -> None:
    found = document([0.2, -0.2] * 40, margin=2.0)
    assert found["decision"] == "undecided" and found["smallest_margin"] > 2 and found["pairs_for_margin"] > 80
    assert "would be equivalent at a margin of " in found["sentence"] and "at 2 points with about " in found["sentence"]
    assert "would be shown with 80 % power" in found["sentence"] and found["p_better"] is None


def test_a_complete_exact_list_is_known_without_an_interval() -> None:
    assert document([0.1, 0.2], **EXACT)["sentence"] == (
        "new is better than old in score by 15 points, after 2 of 2 scenarios (known)."
    )
    assert document([0.1, -0.1], **EXACT)["sentence"] == "new and old have the same mean score on all 2 scenarios."


def test_models_that_fail_everywhere_are_undecided_with_that_reason() -> None:
    found = document([0.0] * 48, margin=2.0, unknown=48)
    assert found["decision"] == "undecided" and "no pair of tasks has a result with both" in found["sentence"]
    assert "48 of 48 pairs of tasks have no result to compare" in found["message"]


def test_differences_by_sign_are_shares_of_the_scenarios() -> None:
    assert "by 50 % of the scenarios (95 % interval " in document([1.0, 0.0] * 20, SIGN)["sentence"]


def test_no_scenario_is_said_to_be_none() -> None:
    assert document([], scenarios=4)["sentence"] == "No scenario has been played with both new and old."


def test_a_claim_that_the_end_contradicts_is_kept_and_the_contradiction_is_said() -> None:
    test = PairedTest.begin(TestPlan(bound=100.0, scenarios=116, margin=0.0, **EXACT))
    for share, count in ((60.0, 16), (-40.0, 100)):
        part = differences(np.full(count, share / 100))
        test = test.extend(scaled(part, 100.0))
    context = VerdictContext(metric="score", models=("new", "old"), tasks=116, clipped=0, unknown=0, over=True)
    found = verdict_document(test, SCORE, context)
    assert found["decision"] == "better" and found["claims"]["worse"]
    assert "contradicts it" in found["sentence"] and "-26.2 points" in found["sentence"]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"method": Method.NORMAL}, "estimates the variance"),
        ({"design": Design.LIST}, "played once"),
        ({"standing": True, "ended": False}, "still runs"),
    ],
)
def test_what_a_reader_has_to_know_is_in_the_message(plan: dict[str, Any], words: str) -> None:
    assert words in document([0.1, -0.1] * 20, margin=2.0, **plan)["message"]


def test_what_was_saved_is_said_once_nothing_more_is_played() -> None:
    saving = document([0.5, 0.4] * 20, scenarios=288)["saving"]
    assert saving["played"] == 40 and saving["needed"] <= saving["needed_at_most"]
    assert saving["sentence"].startswith("40 of 288 scenarios were played; 248 (86 %) were saved.")
