"""Events and results in words."""

from typing import Any

import pytest

from windtunnel.descriptions import event_text, result_text
from windtunnel.records import Event, read
from windtunnel.visible_text import terminal_text


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"type": "state", "state": "running"}, "running"),
        ({"type": "state", "state": "queued", "reason": "position 3"}, "queued: position 3"),
        ({"type": "progress", "done": 5, "total": 9, "failed": 0, "rate": None, "eta": None}, "5 of 9 tasks"),
        (
            {"type": "progress", "done": 5, "total": 9, "failed": 2, "rate": 2.5, "eta": 75},
            "5 of 9 tasks, 2 not ok, 2.500 tasks/s, 1m15s left",
        ),
        (
            {"type": "progress", "done": 9, "total": 9, "failed": 0, "rate": 2.5, "eta": 0},
            "9 of 9 tasks, 2.500 tasks/s, 0.0 s left",
        ),
        (
            {"type": "staging", "what": "missing", "message": "packages are installed: python"},
            "packages are installed: python",
        ),
        (
            {"type": "staging", "what": "environment", "name": "python", "message": "downloading", "fraction": 0.0},
            "python: downloading",
        ),
        ({"type": "staging", "what": "dataset", "bytes": 1, "total_bytes": 2, "fraction": 0.5}, ""),
        ({"type": "launch", "launch": 1, "state": "failed", "message": "the node is gone"}, "the node is gone"),
        ({"type": "launch", "launch": 1, "state": "running", "message": None}, "launch 1, state running"),
        ({"type": "batch", "batch": 2, "sentence": "a is better"}, "a is better"),
        ({"type": "of_a_newer_platform", "share": 0.5}, "share 0.5"),
    ],
)
def test_every_event_is_told_in_words(members: dict[str, Any], text: str) -> None:
    event = read(Event, {"number": 1, "at": "2026-11-26T10:00:00Z", **members})
    assert event_text(event) == text


def test_a_text_of_a_model_is_no_markup_and_moves_no_cursor() -> None:
    event = read(Event, {"number": 1, "type": "staging", "name": "x", "message": "[red]\x1b[0m"})
    assert terminal_text(event_text(event)) == "x: \\[red]\\x1b[0m"


def result(task: int, score: float | None, status: str = "ok", **metrics: Any) -> dict[str, Any]:
    return {
        "task": task,
        "status": status,
        "scenario": {"index": task, "name": f"street-{task}"},
        "metrics": {"score": score, "outcome": "arrived", **metrics},
        "error": None if status == "ok" else "the model raised",
    }


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (result(0, 1.0, outcome="collision", at_fault=1, impact_speed=7.25), "collision at fault, impact at 7.2 m/s"),
        (result(0, 1.0, outcome="collision", at_fault=0), "collision not at fault"),
        (result(0, 1.0, outcome="timeout", route_completion=42.0), "did not arrive in time, 42 % of the route"),
        (result(0, 1.0, red_lights=2), "arrived, ran 2 red lights"),
        (result(0, 0.0, "timed_out"), "timed_out: the model raised"),
    ],
)
def test_every_bad_result_has_a_reason(document: dict[str, Any], text: str) -> None:
    assert result_text(document) == text
