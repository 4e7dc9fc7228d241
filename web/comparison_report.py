"""Report of a comparison: the worst replays of each model beside the reference, and the parts of a single file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from web import replay_bundle
from web.api_client import Refused, api, path_of

#: Replays of each model: scenarios in which it is worse, by the size of the difference; else those where it is better.
WORST = 3
#: Significant digits of numbers in the replays of a report.
DIGITS = 5
STYLE = Path(__file__).parent / "static" / "windtunnel.css"


def replays_of(comparison: Mapping[str, Any]) -> dict[str, dict[str, Any]] | None:
    """Return the replays by anchor: scenario, labels, and the two documents; None while one is being made.

    All that are missing are requested first, so that they are made together. A scenario without a replay is left out:
    its traces were not recorded, or its simulation was deleted.
    """
    waiting = False
    replays: dict[str, dict[str, Any]] = {}
    for model in comparison["models"]:
        scenarios = model["scenarios"]["worse"] or model["scenarios"]["better"]
        for scenario in scenarios[:WORST]:
            sides = (scenario["simulation"], scenario["task"]), (scenario["to_simulation"], scenario["to_task"])
            documents = [replay_of(simulation, task) for simulation, task in sides]
            waiting = waiting or any(document == {} for document in documents)
            if None not in documents:
                replays[anchor_of(scenario)] = {
                    "scenario": scenario,
                    "labels": (model["label"], comparison["reference"]["label"]),
                    "documents": documents,
                }
    return None if waiting else replays


def replay_of(simulation: str, task: int) -> dict[str, Any] | None:
    """Return the replay of a task; empty while it is being made, None if there is none."""
    path = path_of("simulations", simulation, "tasks", str(task), "replay")
    try:
        answer = api().send("GET", path, headers={"Accept": "application/json"})
    except Refused as error:
        if error.status not in (404, 409, 410):
            raise
        return None
    document: dict[str, Any] = {} if answer.status_code == 202 else rounded(answer.json())
    return document


def rounded(value: Any) -> Any:
    """Return a document with numbers of DIGITS digits, which a picture does not show: it is half as long."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(member) for name, member in value.items()}
    return [rounded(member) for member in value] if isinstance(value, list) else value


def anchor_of(scenario: Mapping[str, Any]) -> str:
    """Return the name of a scenario's place in the report."""
    return f"replay-{scenario['simulation']}-{scenario['task']}"


def inline_parts() -> dict[str, str]:
    """Return the scripts and styles of the report, as text of inline elements."""
    return {
        "script": replay_bundle.script(),
        "style": replay_bundle.inline(STYLE.read_text()) + replay_bundle.style(),
    }
