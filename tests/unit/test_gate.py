"""The gate's decision and its reports: what passes, what fails, and what is said about it."""

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel import gate

URL = "http://platform/comparisons/1"


def model_of(*claims: str, refuted: tuple[str, ...] = (), **members: Any) -> dict[str, Any]:
    names = ("better", "worse", "not_worse", "equivalent")
    verdict = {
        "metric": "score", "sentence": f"a is {', '.join(claims)}.", "message": None,
        "claims": {name: name in claims for name in names},
        "refuted": {name: name in refuted for name in names},
    }  # fmt: skip
    return {"name": "a", "state": "finished", "verdict": verdict, **members}


def flips_of(broke: int) -> dict[str, Any]:
    flip = {"name": "night", "index": 3, "outcome": "collision", "to_outcome": "arrived", "at": 2.5, "replay": "/r"}
    return {"counts": {"broke": broke, "fixed": 0}, "broke": [flip] * broke, "sentence": f"{broke} broke."}


def group(name: str, verdict: str, smallest: float | None = 1.0) -> dict[str, Any]:
    return {"group": name, "verdict": verdict, "smallest": smallest, "sentence": f"{name}: {verdict}."}


@pytest.mark.parametrize(
    ("model", "requirement", "outcome"),
    [
        (model_of("better", "not_worse"), "better", "passed"),
        (model_of("better", "not_worse"), "not-worse", "passed"),
        (model_of("equivalent", "not_worse"), "not-worse", "passed"),
        (model_of("equivalent", "not_worse"), "equivalent", "passed"),
        (model_of("equivalent", "not_worse"), "better", "undecided"),
        (model_of(), "better", "undecided"),
        (model_of(), "not-worse", "undecided"),
        (model_of("worse"), "not-worse", "undecided"),
        (model_of("worse", refuted=("better", "not_worse")), "not-worse", "refuted"),
        (model_of("worse", refuted=("better",)), "better", "refuted"),
    ],
)
def test_a_claim_passes_if_it_was_shown_and_is_undecided_unless_its_opposite_was(
    model: dict[str, Any], requirement: gate.Requirement, outcome: gate.Outcome
) -> None:
    check = gate.verdict_check(model, requirement)
    assert check.outcome == outcome
    assert gate.exit_code([check]) == {"passed": 0, "refuted": 1, "undecided": 3}[outcome]


def test_another_check_that_fails_outweighs_an_undecided_verdict() -> None:
    undecided = gate.verdict_check(model_of(), "not-worse")
    assert gate.exit_code([undecided, gate.task_check(1, 2, allowed=0, error=None)]) == 1


def test_scenarios_that_broke_fail_the_gate_if_they_are_more_than_allowed() -> None:
    model = model_of("equivalent", flips=flips_of(7))
    assert gate.flip_check(model, 7).outcome == "passed"
    failed = gate.flip_check(model, 2)
    assert failed.outcome == "failed" and "night" in failed.message and "and 2 more; 2 may." in failed.message
    text = gate.markdown([failed], model, title="t", url=URL, server="http://platform")
    assert "**What broke**" in text and "[night](http://platform/r)" in text and "2.500 s" in text


def test_a_report_tells_a_refuted_claim_from_an_undecided_one() -> None:
    for model, kind in ((model_of(refuted=("not_worse",)), "refuted"), (model_of(), "undecided")):
        report = gate.junit([gate.verdict_check(model, "not-worse")], name="gate", url=URL, seconds=1.0)
        failure = ElementTree.fromstring(report).find("testsuite/testcase/failure")
        assert failure is not None and failure.get("type") == kind


def test_a_candidate_without_a_verdict_does_not_pass() -> None:
    check = gate.verdict_check(model_of() | {"verdict": None, "state": "failed", "reason": "It crashed."}, "not-worse")
    assert check.outcome == "failed" and "It crashed." in check.message


def test_a_candidate_that_fails_in_a_task_does_not_pass_however_bad_the_reference_is() -> None:
    assert gate.task_check(0, 16, allowed=0, error=None).outcome == "passed"
    failed = gate.task_check(16, 16, allowed=0, error="IndexError")
    assert failed.outcome == "failed" and "16 of 16" in failed.message and "IndexError" in failed.message
    assert gate.task_check(2, 16, allowed=2, error="IndexError").outcome == "passed"


def test_a_group_that_regressed_fails_and_one_with_too_few_pairs_is_skipped() -> None:
    groups = {"street": [group("a", "regressed"), group("b", "suspect"), group("c", "held", None), group("d", "held")]}
    checks = gate.group_checks(model_of(groups=groups))
    assert [check.outcome for check in checks] == ["failed", "passed", "skipped", "passed"]
    assert not gate.passes(checks) and gate.passes(checks[1:])


@given(
    st.lists(st.tuples(st.sampled_from(["passed", "failed", "refuted", "undecided", "skipped"]), st.text(), st.text()))
)
def test_a_junit_report_has_a_case_for_each_check_whatever_the_texts_are(cases: list[tuple[Any, str, str]]) -> None:
    checks = [gate.Check("suite", name, outcome, message) for outcome, name, message in cases]
    suite = ElementTree.fromstring(gate.junit(checks, name="gate", url=URL, seconds=1.5)).find("testsuite")
    assert suite is not None
    found = suite.findall("testcase")
    assert len(found) == len(checks) == int(suite.get("tests", ""))
    for case, check in zip(found, checks, strict=True):
        tag = {"passed": "system-out", "skipped": "skipped"}.get(check.outcome, "failure")
        assert [child.tag for child in case] == [tag]
    assert int(suite.get("failures", "")) == sum(check.outcome not in ("passed", "skipped") for check in checks)


def test_a_summary_shows_the_verdict_the_regressed_groups_and_the_scenarios_that_differ_most() -> None:
    scenario = {
        "name": "night|rain", "index": 3, "task": 1, "to_task": 2, "simulation": "s", "to_simulation": "t",
        "status": "ok", "to_status": "crashed", "first": 1.0, "second": None, "difference": -2.0,
    }  # fmt: skip
    model = model_of("worse", refuted=("not_worse",), scenarios={"worse": [scenario], "better": []})
    checks = [gate.verdict_check(model, "not-worse"), gate.Check("group street", "<b>", "failed", "x: regressed")]
    text = gate.markdown(checks, model, title="a against b", url=URL, server="http://platform")
    assert text.startswith("### ❌ a against b") and "a is worse." in text and URL in text
    assert r"night\|rain" in text and "[crashed](http://platform/simulations/t/tasks/2)" in text
    assert r"street = \<b\>" in text, "text of a dataset is inert in Markdown"


def test_trusted_results_pass_only_a_gate_that_takes_them() -> None:
    verdict = gate.verdict_check(model_of("better", "not_worse"), "not-worse")
    assert gate.trust_check(False, allowed=False) is None is gate.trust_check(False, allowed=True)
    refused, taken = gate.trust_check(True, allowed=False), gate.trust_check(True, allowed=True)
    assert refused and gate.exit_code([verdict, refused]) == gate.FAILED and "--trusted" in refused.message
    assert taken and gate.exit_code([verdict, taken]) == gate.PASSED
    text = gate.markdown([verdict, taken], model_of(), title="t", url=URL, server="http://platform")
    assert "could have changed its own score" in text
    assert "could have changed its own score" in gate.junit([taken], name="t", url=URL, seconds=1.0).decode()
