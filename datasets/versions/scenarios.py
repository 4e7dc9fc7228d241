"""Users' datasets: a `dataset.json` that extends a built-in dataset, and scenarios validated against an allow-list.

Scenarios contain parameters only. A value that a simulator could take as the name of a file, module or class is not
allowed.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from datasets.catalogue import Dataset, datasets
from datasets.versions import file_names
from errors import BadScenario

#: The file that makes a set of files a dataset for simulations, and the most bytes of it that are read.
DESCRIPTION, LONGEST = "dataset.json", 64 << 10
#: The most bytes of one scenario, and scenarios of a dataset: the evaluator holds them all in memory.
LINE, MOST = 16 << 10, 100_000


class Description(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A user's `dataset.json`."""

    extends: str
    scenarios: str
    title: str = ""
    description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldRule:
    """Allowed values of one member of a scenario. ``low`` and ``high`` also bound the lengths of strings and lists."""

    kind: str
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()
    pattern: str | None = None
    members: Mapping[str, "FieldRule"] = field(default_factory=dict)
    items: "FieldRule | None" = None
    required: bool = False


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}

#: Members that every scenario may have.
COMMON: Mapping[str, FieldRule] = {
    "index": FieldRule(kind="int", low=0, high=MOST),
    "name": FieldRule(kind="string", low=1, high=100, pattern=r"[A-Za-z0-9][A-Za-z0-9 ._+-]*"),
}
_LABEL = FieldRule(kind="string", low=1, high=40, pattern=r"[A-Za-z0-9][A-Za-z0-9._-]*")
_STREETS = ("signal_grid", "arterial", "roundabout", "ramp_merge", "priority_junction", "crosswalk")
_EVENTS = (
    "none",
    "lead_brake",
    "stopped_vehicle",
    "red_runner",
    "cut_in",
    "failing_to_yield",
    "stalled",
    "slow_truck",
    "hurried_major",
    "late_pedestrian",
)

#: Lanes of highway-fast-v0 where a scenario does not set `lanes_count`.
LANES = 3
#: Allowed members of a scenario by built-in dataset; a dataset that is missing here cannot be extended.
FIELDS: Mapping[str, Mapping[str, FieldRule]] = {
    "noop": {},
    "cartpole": {
        "options": FieldRule(
            kind="object",
            members={
                "low": FieldRule(kind="float", low=-2.4, high=0.0),
                "high": FieldRule(kind="float", low=0.0, high=2.4),
            },
        )
    },
    "highway": {
        "lanes": FieldRule(kind="int", low=1, high=10),
        "density": FieldRule(kind="float", low=0.1, high=5.0),
        "options": FieldRule(
            kind="object",
            members={
                "config": FieldRule(
                    kind="object",
                    members={
                        "lanes_count": FieldRule(kind="int", low=1, high=10),
                        "vehicles_count": FieldRule(kind="int", low=0, high=200),
                        "vehicles_density": FieldRule(kind="float", low=0.1, high=5.0),
                        "initial_spacing": FieldRule(kind="float", low=0.5, high=10.0),
                        "duration": FieldRule(kind="int", low=1, high=300),
                        "initial_lane_id": FieldRule(kind="int", low=0, high=9),
                        "ego_spacing": FieldRule(kind="float", low=0.5, high=10.0),
                    },
                )
            },
        ),
    },
    "car_street": {
        "street": FieldRule(kind="string", choices=_STREETS, required=True),
        "density": _LABEL,
        "vehicles": FieldRule(kind="int", low=0, high=64, required=True),
        "pedestrians": FieldRule(kind="int", low=0, high=64),
        "event": FieldRule(kind="string", choices=_EVENTS, required=True),
        "mix": FieldRule(kind="string", choices=("mixed", "rough"), required=True),
        "seed": FieldRule(kind="int", low=0, high=2**31 - 1),
        "route": FieldRule(
            kind="list",
            low=2,
            high=20,
            items=FieldRule(kind="string", low=1, high=40, pattern=r"[A-Za-z0-9_]+"),
            required=True,
        ),
        "start": FieldRule(
            kind="object",
            members={
                "lane": FieldRule(kind="int", low=0, high=5, required=True),
                "pos": FieldRule(kind="float", low=0.0, high=10_000.0, required=True),
                "speed": FieldRule(kind="float", low=0.0, high=60.0, required=True),
            },
            required=True,
        ),
        "trigger": FieldRule(kind="float", low=0.0, high=10_000.0),
        "limit": FieldRule(kind="float", low=1.0, high=60.0, required=True),
        "time_limit": FieldRule(kind="float", low=1.0, high=600.0, required=True),
    },
}


def parse_description(raw: bytes) -> Description:
    """Parse a user's `dataset.json`; raise BadScenario with the reason if it is invalid."""
    try:
        description = msgspec.json.decode(raw, type=Description)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadScenario(
            f"{DESCRIPTION} cannot be read: {error}. It has `extends` and `scenarios`, and may have `title` and"
            " `description`; simulators, interfaces, metrics and parameters come from the dataset that it extends."
        ) from None
    if description.extends not in FIELDS or description.extends not in datasets():
        allowed = ", ".join(sorted(FIELDS))
        raise BadScenario(f"{DESCRIPTION}: `extends` is one of {allowed}; not {description.extends!r:.80}.")
    if len(description.title) > 200 or len(description.description) > 4000:
        raise BadScenario(f"{DESCRIPTION}: `title` has up to 200 characters, `description` up to 4,000.")
    return msgspec.structs.replace(description, scenarios=file_names.validated(description.scenarios))


def non_blank(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that are not blank; scenarios are numbered without blank lines. Overlong lines are kept."""
    return (line for line in lines if len(line) > LINE or line.strip())


def validated(lines: Iterable[bytes], extends: str) -> Iterator[dict[str, Any]]:
    """Yield each scenario as a dict; raise BadScenario with the line's number for an invalid scenario."""
    allowed = {**COMMON, **FIELDS[extends]}
    semantic_check = _SEMANTIC_CHECKS.get(extends)
    for number, line in enumerate(lines, 1):
        try:
            if len(line) > LINE:
                raise ValueError(f"it has more than {LINE} bytes")
            if number > MOST:
                raise ValueError(f"a dataset has at most {MOST:,} scenarios")
            scenario = msgspec.json.decode(line, type=dict[str, Any])
            _check(scenario, FieldRule(kind="object", members=allowed), "")
            if scenario.setdefault("index", number - 1) != number - 1:
                raise ValueError(f"`index` is {number - 1} on this line, or left out")
            if semantic_check is not None:
                semantic_check(scenario)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise BadScenario(f"Line {number} of the scenarios: {error}.", line=number) from None
        yield scenario


def _check(value: Any, rule: FieldRule, path: str) -> None:
    name = f"`{path}`" if path else "it"
    if not _KINDS[rule.kind](value):
        raise ValueError(f"{name} is not of type {rule.kind}")
    if rule.choices and value not in rule.choices:
        raise ValueError(f"{name} is one of {', '.join(map(str, rule.choices))}")
    size = len(value) if rule.kind in {"string", "list"} else value
    if rule.kind != "object" and (
        (rule.low is not None and size < rule.low) or (rule.high is not None and size > rule.high)
    ):
        subject = "its length" if rule.kind in {"string", "list"} else "it"
        raise ValueError(f"{name}: {subject} lies in {rule.low:g}..{rule.high:g}")
    if rule.pattern is not None and not re.fullmatch(rule.pattern, value, re.ASCII):
        raise ValueError(f"{name} does not match {rule.pattern}")
    if rule.kind == "object":
        _check_members(value, rule.members, f"{path}." if path else "")
    for index, item in enumerate(value if rule.items is not None else ()):
        assert rule.items is not None
        _check(item, rule.items, f"{path}[{index}]")


def _check_members(value: Mapping[str, Any], rules: Mapping[str, FieldRule], prefix: str) -> None:
    for name, member in value.items():
        if name not in rules:
            allowed = ", ".join(sorted(rules))
            raise ValueError(f"`{(prefix + name)[:80]}` is not allowed; allowed are: {allowed}")
        _check(member, rules[name], prefix + name)
    if missing := [name for name, rule in rules.items() if rule.required and name not in value]:
        raise ValueError(f"`{prefix}{missing[0]}` is missing")


@functools.cache
def _network(street: str) -> Any:
    """Return the parsed road network of a street."""
    from datasets.catalogue.car_street.scenarios import StreetNetwork

    return StreetNetwork.of((datasets()["car_street"].folder / "nets" / f"{street}.net.xml").read_text())


def _check_route(scenario: Mapping[str, Any]) -> None:
    """Check that a route follows connected edges of its street, and that its start lane leads to the next edge."""
    network = _network(scenario["street"])
    route, start = scenario["route"], scenario["start"]
    for edge, next_edge in pairwise(route):
        if edge not in network.lengths or next_edge not in network.onward(edge):
            raise ValueError(f"`route`: {edge} is not connected to {next_edge} on {scenario['street']}")
    lanes = network.leading(route[0], route[1])
    if start["lane"] not in lanes:
        raise ValueError(f"`start.lane`: on {route[0]} only the lanes {', '.join(map(str, lanes))} lead to {route[1]}")
    if start["pos"] > network.lengths[route[0]]:
        raise ValueError(f"`start.pos`: {route[0]} is {network.lengths[route[0]]:g} m long")


def _check_initial_lane(scenario: Mapping[str, Any]) -> None:
    """Check that the initial lane exists."""
    config = scenario.get("options", {}).get("config", {})
    lanes = config.get("lanes_count", LANES)
    if config.get("initial_lane_id", 0) >= lanes:
        raise ValueError(f"`options.config.initial_lane_id` is below `lanes_count`, which is {lanes}")


_SEMANTIC_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "car_street": _check_route,
    "highway": _check_initial_lane,
}


def extend(built_in: Dataset, *, name: str, version: str, digest: str, description: Mapping[str, Any]) -> Dataset:
    """Return a user's dataset with the definition of a built-in one; ``description`` is its registration's result."""
    own = {
        "name": name,
        "version": version,
        "title": description["title"] or name,
        "description": description["description"],
        "tasks": description["tasks"],
        "max_tasks": description["tasks"],
        "scenarios": SCENARIOS,
        "listed": description["scenarios"],
        "files": [],
        "extends": built_in.name,
    }
    definition = dict(built_in.definition) | own
    return Dataset(name=name, version=version, digest=digest, folder=built_in.folder, definition=definition)


#: File name of the scenarios in the folder that an evaluator sees.
SCENARIOS = "scenarios.ndjson"
