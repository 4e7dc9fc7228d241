"""The gate's decision and its reports: what passes, what fails, and what is said about it."""

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel import gate

URL = "http://platform/comparisons/1"


def model_of(decision: str = "better", **members: Any) -> dict[str, Any]:
    verdict = {"decision": decision, "metric": "score", "sentence": f"a is {decision}.", "message": None}
    return {"name": "a", "state": "finished", "verdict": verdict, **members}


def group(name: str, verdict: str, smallest: float | None = 1.0) -> dict[str, Any]:
    return {"group": name, "verdict": verdict, "smallest": smallest, "sentence": f"{name}: {verdict}."}


@pytest.mark.parametrize(
    ("decision", "requirement", "outcome"),
    [
        ("better", "better", "passed"),
        ("better", "not-worse", "passed"),
        ("undecided", "better", "failed"),
        ("undecided", "not-worse", "passed"),
        ("worse", "better", "failed"),
        ("worse", "not-worse", "failed"),
    ],
)
def test_a_verdict_passes_as_the_gate_requires(
    decision: str, requirement: gate.Requirement, outcome: gate.Outcome
) -> None:
    assert gate.verdict_check(model_of(decision), requirement).outcome == outcome


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


@given(st.lists(st.tuples(st.sampled_from(["passed", "failed", "skipped"]), st.text(), st.text())))
def test_a_junit_report_has_a_case_for_each_check_whatever_the_texts_are(cases: list[tuple[Any, str, str]]) -> None:
    checks = [gate.Check("suite", name, outcome, message) for outcome, name, message in cases]
    suite = ElementTree.fromstring(gate.junit(checks, name="gate", url=URL, seconds=1.5)).find("testsuite")
    assert suite is not None
    found = suite.findall("testcase")
    assert len(found) == len(checks) == int(suite.get("tests", ""))
    for case, check in zip(found, checks, strict=True):
        tag = {"passed": "system-out", "failed": "failure", "skipped": "skipped"}[check.outcome]
        assert [child.tag for child in case] == [tag]
    assert int(suite.get("failures", "")) == sum(check.outcome == "failed" for check in checks)


def test_a_summary_shows_the_verdict_the_regressed_groups_and_the_scenarios_that_differ_most() -> None:
    scenario = {
        "name": "night|rain", "index": 3, "task": 1, "to_task": 2, "simulation": "s", "to_simulation": "t",
        "status": "ok", "to_status": "crashed", "first": 1.0, "second": None, "difference": -2.0,
    }  # fmt: skip
    model = model_of("worse", scenarios={"worse": [scenario], "better": []})
    checks = [gate.verdict_check(model, "not-worse"), gate.Check("group street", "<b>", "failed", "x: regressed")]
    text = gate.markdown(checks, model, title="a against b", url=URL, server="http://platform")
    assert text.startswith("### ❌ a against b") and "a is worse." in text and URL in text
    assert r"night\|rain" in text and "[crashed](http://platform/simulations/t/tasks/2)" in text
    assert r"street = \<b\>" in text, "text of a dataset is inert in Markdown"
