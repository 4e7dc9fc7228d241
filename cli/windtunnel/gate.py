"""Gate: whether a comparison lets a candidate through, as a list of checks, with JUnit and Markdown reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree import ElementTree

from windtunnel import figures
from windtunnel.visible_text import visible

#: What has to be shown of the candidate: that it is not worse by the margin, better, or equivalent within the margin.
Requirement = Literal["not-worse", "better", "equivalent"]
#: `refuted`: the opposite was shown. `undecided`: neither was. `errored`: nothing could be compared.
Outcome = Literal["passed", "failed", "refuted", "undecided", "skipped", "errored"]

#: Element of a JUnit report for each outcome but `passed`.
TAGS: Mapping[Outcome, str] = {
    "failed": "failure",
    "refuted": "failure",
    "undecided": "failure",
    "skipped": "skipped",
    "errored": "error",
}
#: Exit codes of a gate whose comparison could be played.
PASSED, FAILED, UNDECIDED = 0, 1, 3
#: Scenarios that broke which the message of their check names.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a gate: what was looked at, how it ended, and why."""

    suite: str
    name: str
    outcome: Outcome
    message: str


def claim_of(requirement: Requirement) -> str:
    """Return the claim of a comparison that a requirement asks for."""
    return requirement.replace("-", "_")


def verdict_check(model: Mapping[str, Any], requirement: Requirement) -> Check:
    """Return the check of the verdict on a candidate, a model of a comparison that has ended."""
    verdict = model["verdict"]
    if verdict is None or model["state"] not in {"finished", "running"}:
        reason = model.get("reason") or f"the model is {model['state']}"
        return Check("verdict", "candidate", "failed", f"{model['name']} could not be compared: {reason}")
    claim = claim_of(requirement)
    outcome: Outcome = "passed" if verdict["claims"][claim] else "refuted" if verdict["refuted"][claim] else "undecided"
    words = " ".join(filter(None, (verdict["sentence"], verdict.get("message"))))
    return Check("verdict", str(verdict["metric"]), outcome, words)


def flip_check(model: Mapping[str, Any], allowed: int) -> Check:
    """Return the check of the scenarios that broke: that only the candidate fails."""
    flips = model["flips"]
    broke = flips["counts"]["broke"] if flips else 0
    message = str(flips["sentence"]) if flips else "No scenario was played."
    if broke > allowed:
        names = [str(flip["name"] or f"scenario {flip['index']}") for flip in flips["broke"][:NAMED]]
        more = f" and {broke - len(names):,} more" if broke > len(names) else ""
        message += f" Broke: {', '.join(names)}{more}; {allowed:,} may."
    return Check("flips", "no new failures", "passed" if broke <= allowed else "failed", message)


def task_check(failed: int, played: int, *, allowed: int, error: str | None) -> Check:
    """Return the check of the candidate's tasks: ``failed`` of ``played`` are not `ok`; ``error`` is that of one."""
    if failed <= allowed:
        return Check("tasks", "every task is ok", "passed", f"{played - failed} of {played} tasks are ok.")
    message = f"{failed} of {played} tasks of the candidate are not ok, more than {allowed}"
    return Check("tasks", "every task is ok", "failed", f"{message}: {error}" if error else f"{message}.")


def same_model(requirement: Requirement) -> Check:
    """Return the check of a candidate that has the same bytes as the reference: it is as good as that."""
    outcome: Outcome = "refuted" if requirement == "better" else "passed"
    return Check("verdict", "candidate", outcome, "The candidate and the reference are the same bytes.")


def trust_check(trusted: bool, *, allowed: bool) -> Check | None:
    """Return the check of what was played; None if it was isolated. ``allowed``: trusted results count."""
    if not trusted:
        return None
    words = "The models ran in the evaluator's process: each could have changed its own score."
    if allowed:
        return Check("trusted", "trusted results count", "passed", words)
    return Check("trusted", "trusted results count", "failed", f"{words} With --trusted the gate takes that.")


def errored(reason: str) -> Check:
    """Return the check of a gate that could compare nothing."""
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


def exit_code(checks: Sequence[Check]) -> int:
    """Return the exit code: undecided only if nothing has failed besides."""
    if passes(checks):
        return PASSED
    return FAILED if any(check.outcome in {"failed", "refuted"} for check in checks) else UNDECIDED


def junit(checks: Sequence[Check], *, name: str, url: str, seconds: float) -> bytes:
    """Return the checks as a JUnit report, a test case each; ``url`` is the page of what was played."""
    suites = ElementTree.Element("testsuites", name="windtunnel gate")
    counts = {tag: str(sum(TAGS.get(check.outcome) == tag for check in checks)) for tag in set(TAGS.values())}
    suite = ElementTree.SubElement(
        suites,
        "testsuite",
        name=visible(name),
        tests=str(len(checks)),
        failures=counts["failure"],
        skipped=counts["skipped"],
        errors=counts["error"],
        time=f"{seconds:.3f}",
    )
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", name="comparison", value=url)
    for check in checks:
        case = ElementTree.SubElement(
            suite, "testcase", classname=visible(f"windtunnel.{check.suite}"), name=visible(check.name), time="0"
        )
        if check.outcome != "passed":
            told = ElementTree.SubElement(case, TAGS[check.outcome], type=check.outcome, message=visible(check.message))
            told.text = url
        else:
            ElementTree.SubElement(case, "system-out").text = visible(check.message)
    ElementTree.indent(suites)
    report: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return report + b"\n"


def markdown(checks: Sequence[Check], model: Mapping[str, Any], *, title: str, url: str, server: str) -> str:
    """Return a summary for a pull request: the verdict, failed checks, and the scenarios that differ most."""
    lines = [f"### {'✅' if passes(checks) else '❌'} {_cell(title)}", ""]
    summed = {"verdict", "tasks", "flips", "trusted"}
    lines += [f"- {_cell(check.message)}" for check in checks if check.suite in summed]
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
    if any(check.suite == "flips" for check in checks) and (broke := ((model.get("flips") or {}).get("broke") or [])):
        lines += ["", "**What broke**", "", "| scenario | candidate | reference | at |", "|---|---|---|--:|"]
        lines += [_flip(entry, server) for entry in broke[:NAMED]]
    skipped = sum(check.outcome == "skipped" for check in checks)
    if skipped:
        lines += ["", f"{skipped} groups have too few scenarios for a verdict of their own."]
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


def _flip(entry: Mapping[str, Any], server: str) -> str:
    name = _cell(entry["name"] or f"scenario {entry['index']}")
    at = "" if entry["at"] is None else f"{figures.number(entry['at'])} s"
    return f"| [{name}]({server}{entry['replay']}) | {_cell(entry['outcome'])} | {_cell(entry['to_outcome'])} | {at} |"


def _cell(text: object) -> str:
    """Return text that is inert in a cell of a Markdown table."""
    shown = visible(str(text)).replace("\n", " ").replace("\\", "\\\\")
    for character in "|`*_[]<>":
        shown = shown.replace(character, "\\" + character)
    return shown
