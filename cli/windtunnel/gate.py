"""Gate: whether a comparison lets a candidate through, as a list of checks, with JUnit and Markdown reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree import ElementTree

from windtunnel import figures
from windtunnel.visible_text import visible

#: What the verdict must be: that the candidate is better, or that it was not shown to be worse.
Requirement = Literal["better", "not-worse"]
#: `errored`: the gate could not decide.
Outcome = Literal["passed", "failed", "skipped", "errored"]


#: Element of a JUnit report for each outcome but `passed`.
TAGS: Mapping[Outcome, str] = {"failed": "failure", "skipped": "skipped", "errored": "error"}


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a gate: what was looked at, how it ended, and why."""

    suite: str
    name: str
    outcome: Outcome
    message: str


def verdict_check(model: Mapping[str, Any], requirement: Requirement) -> Check:
    """Return the check of the verdict on a candidate, a model of a comparison that has ended."""
    verdict = model["verdict"]
    if verdict is None or model["state"] not in {"finished", "running"}:
        reason = model.get("reason") or f"the model is {model['state']}"
        return Check("verdict", "candidate", "failed", f"{model['name']} could not be compared: {reason}")
    passes = verdict["decision"] == "better" or (requirement == "not-worse" and verdict["decision"] != "worse")
    return Check("verdict", str(verdict["metric"]), "passed" if passes else "failed", str(verdict["sentence"]))


def task_check(failed: int, played: int, *, allowed: int, error: str | None) -> Check:
    """Return the check of the candidate's tasks: ``failed`` of ``played`` are not `ok`; ``error`` is that of one."""
    if failed <= allowed:
        return Check("tasks", "every task is ok", "passed", f"{played - failed} of {played} tasks are ok.")
    message = f"{failed} of {played} tasks of the candidate are not ok, more than {allowed}"
    return Check("tasks", "every task is ok", "failed", f"{message}: {error}" if error else f"{message}.")


def same_model(requirement: Requirement) -> Check:
    """Return the check of a candidate that has the same bytes as the reference: it is as good as that."""
    outcome: Outcome = "failed" if requirement == "better" else "passed"
    return Check("verdict", "candidate", outcome, "The candidate and the reference are the same bytes.")


def undecided(reason: str) -> Check:
    """Return the check of a gate that could not decide."""
    return Check("verdict", "candidate", "errored", f"The gate could not decide: {reason}")


def group_checks(model: Mapping[str, Any]) -> list[Check]:
    """Return a check for each group of scenarios: failed where the candidate has regressed.

    A group with too few pairs to show a difference is skipped, because nothing was found out about it.
    """
    return [
        Check(
            f"group {grouping}",
            str(group["group"]),
            "failed"
            if group["verdict"] == "regressed"
            else "skipped"
            if group["verdict"] == "held" and group["smallest"] is None
            else "passed",
            str(group["sentence"]),
        )
        for grouping, groups in (model.get("groups") or {}).items()
        for group in groups
    ]


def passes(checks: Sequence[Check]) -> bool:
    """Return whether no check has failed, and the gate could decide."""
    return all(check.outcome in {"passed", "skipped"} for check in checks)


def junit(checks: Sequence[Check], *, name: str, url: str, seconds: float) -> bytes:
    """Return the checks as a JUnit report, a test case each; ``url`` is the page of what was played."""
    suites = ElementTree.Element("testsuites", name="windtunnel gate")
    counts = {outcome: str(sum(check.outcome == outcome for check in checks)) for outcome in TAGS}
    suite = ElementTree.SubElement(
        suites,
        "testsuite",
        name=visible(name),
        tests=str(len(checks)),
        failures=counts["failed"],
        skipped=counts["skipped"],
        errors=counts["errored"],
        time=f"{seconds:.3f}",
    )
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", name="comparison", value=url)
    for check in checks:
        case = ElementTree.SubElement(
            suite, "testcase", classname=visible(f"windtunnel.{check.suite}"), name=visible(check.name), time="0"
        )
        if check.outcome != "passed":
            ElementTree.SubElement(case, TAGS[check.outcome], message=visible(check.message)).text = url
        else:
            ElementTree.SubElement(case, "system-out").text = visible(check.message)
    ElementTree.indent(suites)
    report: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return report + b"\n"


def markdown(checks: Sequence[Check], model: Mapping[str, Any], *, title: str, url: str, server: str) -> str:
    """Return a summary for a pull request: the verdict, failed checks, and the scenarios that differ most."""
    lines = [f"### {'✅' if passes(checks) else '❌'} {_cell(title)}", ""]
    lines += [f"- {_cell(check.message)}" for check in checks if check.suite in {"verdict", "tasks"}]
    verdict = model.get("verdict") or {}
    if verdict.get("message"):
        lines.append(f"- {_cell(verdict['message'])}")
    failed = [check for check in checks if check.outcome == "failed" and check.suite.startswith("group ")]
    if failed:
        lines += ["", "| group | regressed |", "|---|---|"]
        lines += [f"| {_cell(f'{check.suite} = {check.name}')} | {_cell(check.message)} |" for check in failed]
    scenarios = model.get("scenarios") or {}
    for direction, head in (("worse", "Where the candidate is worse"), ("better", "Where it is better")):
        worst = (scenarios.get(direction) or [])[:5]
        if worst:
            lines += ["", f"**{head}**", "", "| scenario | candidate | reference | difference |", "|---|--:|--:|--:|"]
            lines += [_scenario(entry, server) for entry in worst]
    skipped = sum(check.outcome == "skipped" for check in checks)
    if skipped:
        lines += ["", f"{skipped} groups have too few pairs for a verdict of their own."]
    lines += ["", f"[The whole comparison]({url})", ""]
    return "\n".join(lines)


def _scenario(entry: Mapping[str, Any], server: str) -> str:
    def result(side: str) -> str:
        status = entry["status" if side == "first" else "to_status"]
        value = figures.number(entry[side]) if status == "ok" else str(status)
        simulation, task = (
            entry["simulation" if side == "first" else "to_simulation"],
            entry["task" if side == "first" else "to_task"],
        )
        return f"[{_cell(value)}]({server}/simulations/{simulation}/tasks/{task})"

    name = entry.get("name") or f"scenario {entry['index']}"
    return f"| {_cell(name)} | {result('first')} | {result('second')} | {figures.number(entry['difference'])} |"


def _cell(text: object) -> str:
    """Return text that is inert in a cell of a Markdown table."""
    shown = visible(str(text)).replace("\n", " ").replace("\\", "\\\\")
    for character in "|`*_[]<>":
        shown = shown.replace(character, "\\" + character)
    return shown
