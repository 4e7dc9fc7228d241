"""Report of a comparison as one HTML file: the worst replays of each model beside the reference, and inline parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from web import replay_bundle
from web.api_client import Refused, api, path_of

#: Replays of each model: scenarios in which it is worse, by the size of the difference; else those where it is better.
WORST = 3
#: Bytes of a report, unless all replays are asked for: what mail and chats take.
MOST_BYTES = 3_000_000
#: Bytes of a replay's place in the report, besides its documents, at most.
_PLACE = 2_000
#: Significant digits of numbers in the replays of a report.
DIGITS = 5
JSON = {"Accept": "application/json"}
STYLE = Path(__file__).parent / "static" / "windtunnel.css"


@dataclass(frozen=True, slots=True)
class Pair:
    """A scenario whose replays belong in the report: of a model, and of the reference. ``label``: of the model."""

    scenario: Mapping[str, Any]
    label: str

    @property
    def anchor(self) -> str:
        """Name of its place in the report."""
        return anchor_of(self.scenario)

    @property
    def sides(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Simulation and task of both replays."""
        scenario = self.scenario
        return (scenario["simulation"], scenario["task"]), (scenario["to_simulation"], scenario["to_task"])


@dataclass(frozen=True, slots=True)
class Made:
    """How many of the replays of a report have been made, or cannot be."""

    count: int
    total: int


@dataclass(frozen=True, slots=True)
class Replays:
    """Replays of a report: the two documents of each, as text for a script element, in the order of their pairs.

    ``too_large``: pairs that are left out, so that the report has its size. ``missing``: pairs that have no replay.
    """

    shown: Sequence[tuple[Pair, tuple[Markup, Markup]]]
    too_large: Sequence[Pair]
    missing: Sequence[Pair]


def pairs_of(comparison: Mapping[str, Any]) -> list[Pair]:
    """Return the pairs of a comparison's report, the worst of each model before the second ones."""
    ranked = [
        [Pair(scenario, model["label"]) for scenario in (model["scenarios"]["worse"] or model["scenarios"]["better"])]
        for model in comparison["models"]
    ]
    return [pairs[place] for place in range(WORST) for pairs in ranked if place < len(pairs)]


def request_replays(pairs: Sequence[Pair]) -> Made:
    """Let all replays be made that are missing, together; return how many there are."""
    sides = dict.fromkeys(side for pair in pairs for side in pair.sides)
    return Made(sum(api().status(_path(*side), headers=JSON) != 202 for side in sides), len(sides))


def replays_of(pairs: Sequence[Pair], room: float) -> Replays:
    """Return the replays, which have been made, as far as there are ``room`` bytes for them."""
    shown, too_large, missing = [], [], []
    for pair in pairs:
        first, second = (_document_of(*side) for side in pair.sides)
        if first is None or second is None:
            missing.append(pair)
            continue
        size = len(first.encode()) + len(second.encode()) + _PLACE
        if size > room:
            too_large.append(pair)
            continue
        room -= size
        shown.append((pair, (first, second)))
    return Replays(shown, too_large, missing)


def _document_of(simulation: str, task: int) -> Markup | None:
    """Return a replay; None if there is none: its traces were not recorded, or its simulation was deleted."""
    try:
        answer = api().send("GET", _path(simulation, task), headers=JSON)
    except Refused as error:
        if error.status not in (404, 409, 410):
            raise
        return None
    return htmlsafe_json_dumps(rounded(answer.json()), separators=(",", ":")) if answer.status_code == 200 else None


def _path(simulation: str, task: int) -> str:
    return path_of("simulations", simulation, "tasks", str(task), "replay")


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
