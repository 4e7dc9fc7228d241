"""Report of the demo: the sentence and the tables."""

from typing import Any

import pytest
from rich.console import Console

from server.local import demo_report
from tests.unit.test_client_descriptions import result

SIMULATION: dict[str, Any] = {
    "model": {"name": "mine"},
    "runtime": {"name": "onnx"},
    "tasks": {"total": 288, "done": 288, "failed": 0},
    "metrics": {"score": {"mean_penalised": 71.25}},
}


def comparison_of(difference: float, low: float | None, high: float | None) -> dict[str, Any]:
    score = {"count": 288, "mean": 70.0, "to": 70.0 - difference, "difference": difference, "low": low, "high": high}
    return {"models": ["mine", "idm"], "metrics": {"score": score}}


@pytest.mark.parametrize(
    ("comparison", "text"),
    [
        (comparison_of(3.0, 1.0, 5.0), "better than the baseline idm (+3.0, 95 % +1.0 to +5.0)"),
        (comparison_of(-3.0, -5.0, -1.0), "worse than the baseline idm (-3.0"),
        (comparison_of(1.0, -1.0, 3.0), "not distinguishable from the baseline"),
        (comparison_of(1.0, None, None), "not distinguishable from the baseline idm (+1.0)"),  # of a single pair
    ],
)
def test_the_sentence_states_whether_the_difference_is_significant(comparison: dict[str, Any], text: str) -> None:
    sentence = demo_report.sentence(SIMULATION, comparison)
    assert text in sentence and "scored 71.2 of 100" in sentence and sentence.endswith(".")


def test_markup_in_the_name_of_a_scenario_is_escaped() -> None:
    console = Console(record=True, width=100)
    worst = result(7, 0.0)
    worst["scenario"]["name"] = "[red]not markup[/red]"
    console.print(demo_report.worst_table([worst]))
    assert "[red]not markup[/red]" in console.export_text()


def test_the_table_has_the_model_the_baseline_and_their_difference() -> None:
    console = Console(record=True, width=120)
    timing = {"timing": {"inference_p50": {"mean": 0.00021}, "inference_p99": {"mean": 0.0009}}}
    console.print(demo_report.table(SIMULATION, timing, timing, comparison_of(3.0, 1.0, 5.0)))
    text = console.export_text()
    assert "+3.0  (+1.0 .. +5.0)" in text and "0.210" in text
