"""What people look at first, in words."""

from typing import Any

import pytest
from rich.console import Console

from cli import report

SIMULATION: dict[str, Any] = {
    "model": {"name": "mine"},
    "runtime": {"name": "onnx"},
    "tasks": {"total": 288, "done": 288, "failed": 0},
    "metrics": {"score": {"mean_penalised": 71.25}},
}


def compared(difference: float, low: float, high: float) -> dict[str, Any]:
    score = {"count": 288, "mean": 70.0, "to": 70.0 - difference, "difference": difference, "low": low, "high": high}
    return {"models": ["mine", "idm"], "metrics": {"score": score}}


@pytest.mark.parametrize(
    ("comparison", "words"),
    [
        (compared(3.0, 1.0, 5.0), "better than the yardstick idm (+3.0, 95 % +1.0 to +5.0)"),
        (compared(-3.0, -5.0, -1.0), "worse than the yardstick idm (-3.0"),
        (compared(1.0, -1.0, 3.0), "not distinguishable from the yardstick"),
    ],
)
def test_one_sentence_says_whether_the_difference_means_anything(comparison: dict[str, Any], words: str) -> None:
    said = report.sentence(SIMULATION, comparison)
    assert words in said and "scored 71.2 of 100" in said and said.endswith(".")


def line(task: int, score: float | None, status: str = "ok", **metrics: Any) -> dict[str, Any]:
    return {
        "task": task,
        "status": status,
        "scenario": {"index": task, "name": f"street-{task}"},
        "metrics": {"score": score, "outcome": "arrived", **metrics},
        "error": None if status == "ok" else "the model raised",
    }


def test_the_worst_come_first_and_those_that_did_not_go_well_before_all() -> None:
    lines = [line(0, 90.0), line(1, 10.0), line(2, 0.0, "crashed"), line(3, 5.0)]
    assert [one["task"] for one in report.worst(lines, 3)] == [2, 3, 1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (line(0, 1.0, outcome="collision", at_fault=1, impact_speed=7.25), "collision at fault, impact at 7.2 m/s"),
        (line(0, 1.0, outcome="collision", at_fault=0), "collision not at fault"),
        (line(0, 1.0, outcome="timeout", route_completion=42.0), "not there in time, 42 % of the route"),
        (line(0, 1.0, red_lights=2), "arrived, ran 2 red lights"),
        (line(0, 0.0, "timed_out"), "timed_out: the model raised"),
    ],
)
def test_each_has_a_reason(given: dict[str, Any], words: str) -> None:
    assert report.reason(given) == words


def test_a_scenario_s_name_is_shown_and_never_obeyed() -> None:
    console = Console(record=True, width=100)
    evil = line(7, 0.0)
    evil["scenario"]["name"] = "[red]not markup[/red]"
    console.print(report.worst_table([evil]))
    assert "[red]not markup[/red]" in console.export_text()


def test_the_table_sets_both_and_the_difference_side_by_side() -> None:
    console = Console(record=True, width=120)
    timing = {"timing": {"inference_p50": {"mean": 0.00021}, "inference_p99": {"mean": 0.0009}}}
    console.print(report.table(SIMULATION, timing, timing, compared(3.0, 1.0, 5.0)))
    text = console.export_text()
    assert "+3.0  (+1.0 .. +5.0)" in text and "0.210" in text
