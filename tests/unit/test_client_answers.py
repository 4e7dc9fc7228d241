"""Answers in words: the score with its interval and what it counts, and the failures, on terminals and in notebooks."""

from typing import Any

import pytest

from windtunnel.answers import answer_lines, failures_text, score_text
from windtunnel.commands.simulations import COLUMNS
from windtunnel.mcp_server.documents import brief
from windtunnel.records import Answer, Simulation, read

SCORE: dict[str, Any] = {
    "metric": "score", "title": "Driving score", "unit": "%", "better": "higher", "mean": 32.9, "low": 26.02,
    "high": 39.78, "tasks": 60, "not_ok": 24, "left_out": 0, "worst": 0.0, "ok_mean": 54.83,
}  # fmt: skip
FAILURES: dict[str, Any] = {
    "count": 37, "tasks": 60, "share": 37 / 60, "not_ok": 24, "metric": "outcome",
    "outcomes": {"collision": 10, "stranded": 0, "timeout": 3},
}  # fmt: skip
SIMULATION = {
    "id": "01jz", "state": "succeeded", "model": {"name": "m", "version": 1}, "dataset": {"name": "d", "version": "1"},
    "runtime": {"name": "python"}, "tasks": {"total": 60, "done": 60, "failed": 24}, "reason": None, "labels": {},
    "score": {"metric": "score", "mean": 54.83, "series": []}, "answer": {"score": SCORE, "failures": FAILURES},
}  # fmt: skip


def test_an_answer_says_how_tasks_that_are_not_ok_count() -> None:
    assert answer_lines(read(Answer, {"score": SCORE, "failures": FAILURES})) == [
        "Driving score: 32.90 % (26.02 to 39.78), the mean of 60 tasks, of which 24 not ok count as 0 %,"
        " the others have 54.83 %",
        "Failures: 61.7 % (37 of 60): 24 not ok, 10 collision, 3 timeout",
    ]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"low": None, "high": None, "tasks": 1, "not_ok": 0, "unit": ""}, "Driving score: 32.90, the mean of 1 task"),
        (
            {"not_ok": 0, "left_out": 24, "worst": None, "tasks": 36},
            "Driving score: 32.90 % (26.02 to 39.78), the mean of 36 tasks, 24 without a value left out",
        ),
    ],
)
def test_what_a_score_lacks_is_not_said(changes: dict[str, Any], text: str) -> None:
    assert answer_lines(read(Answer, {"score": SCORE | changes, "failures": None})) == [text]


def test_without_an_answer_there_is_no_text() -> None:
    assert score_text(None) == failures_text(None) == failures_text(read(Answer, {"score": SCORE})) == ""


def test_every_view_of_a_simulation_has_the_score_over_all_tasks() -> None:
    simulation = read(Simulation, SIMULATION)
    columns = dict(COLUMNS)
    assert columns["score"](SIMULATION) == "32.90 % (26.02 to 39.78)"
    assert columns["failures"](SIMULATION) == "61.7 % (37 of 60)"
    assert "score=32.9" in repr(simulation) and brief(simulation)["answer"]["score"]["mean"] == 32.9
    assert "24 not ok count as" in simulation._repr_html_() and "61.7 % (37 of 60)" in simulation._repr_html_()
