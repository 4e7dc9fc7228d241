"""Datasets of users: a `dataset.json` that extends a built-in one, and scenarios that may say only what is listed here.

Users bring parameters. What could name a file, a module or a class to a simulator is no parameter.
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

#: The file that makes a set of files a dataset to be played, and bytes of it that are read.
DESCRIPTION, LONGEST = "dataset.json", 64 << 10
#: Bytes of one scenario, and scenarios of a dataset: the evaluator holds them all.
LINE, MOST = 16 << 10, 100_000


class Description(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A user's `dataset.json`."""

    extends: str
    scenarios: str
    title: str = ""
    description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """What one member of a scenario may be; ``low`` and ``high`` also bound the lengths of strings and lists."""

    kind: str
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()
    pattern: str | None = None
    members: Mapping[str, "Field"] = field(default_factory=dict)
    items: "Field | None" = None
    required: bool = False


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "list": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}

#: What every scenario may say of itself.
COMMON: Mapping[str, Field] = {
    "index": Field(kind="int", low=0, high=MOST),
    "name": Field(kind="string", low=1, high=100, pattern=r"[A-Za-z0-9][A-Za-z0-9 ._+-]*"),
}
_LABEL = Field(kind="string", low=1, high=40, pattern=r"[A-Za-z0-9][A-Za-z0-9._-]*")
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

#: Lanes of highway-fast-v0 where a scenario does not say how many.
LANES = 3
#: What a scenario of each built-in dataset may say; one that is missing here cannot be extended.
FIELDS: Mapping[str, Mapping[str, Field]] = {
    "noop": {},
    "cartpole": {
        "options": Field(
            kind="object",
            members={
                "low": Field(kind="float", low=-2.4, high=0.0),
                "high": Field(kind="float", low=0.0, high=2.4),
            },
        )
    },
    "highway": {
        "lanes": Field(kind="int", low=1, high=10),
        "density": Field(kind="float", low=0.1, high=5.0),
        "options": Field(
            kind="object",
            members={
                "config": Field(
                    kind="object",
                    members={
                        "lanes_count": Field(kind="int", low=1, high=10),
                        "vehicles_count": Field(kind="int", low=0, high=200),
                        "vehicles_density": Field(kind="float", low=0.1, high=5.0),
                        "initial_spacing": Field(kind="float", low=0.5, high=10.0),
                        "duration": Field(kind="int", low=1, high=300),
                        "initial_lane_id": Field(kind="int", low=0, high=9),
                        "ego_spacing": Field(kind="float", low=0.5, high=10.0),
                    },
                )
            },
        ),
    },
    "car_street": {
        "street": Field(kind="string", choices=_STREETS, required=True),
        "density": _LABEL,
        "vehicles": Field(kind="int", low=0, high=64, required=True),
        "pedestrians": Field(kind="int", low=0, high=64),
        "event": Field(kind="string", choices=_EVENTS, required=True),
        "mix": Field(kind="string", choices=("mixed", "rough"), required=True),
        "seed": Field(kind="int", low=0, high=2**31 - 1),
        "route": Field(
            kind="list",
            low=2,
            high=20,
            items=Field(kind="string", low=1, high=40, pattern=r"[A-Za-z0-9_]+"),
            required=True,
        ),
        "start": Field(
            kind="object",
            members={
                "lane": Field(kind="int", low=0, high=5, required=True),
                "pos": Field(kind="float", low=0.0, high=10_000.0, required=True),
                "speed": Field(kind="float", low=0.0, high=60.0, required=True),
            },
            required=True,
        ),
        "trigger": Field(kind="float", low=0.0, high=10_000.0),
        "limit": Field(kind="float", low=1.0, high=60.0, required=True),
        "time_limit": Field(kind="float", low=1.0, high=600.0, required=True),
    },
}


def describe(raw: bytes) -> Description:
    """Read a user's `dataset.json`; raise BadScenario, saying what is wrong with it."""
    try:
        said = msgspec.json.decode(raw, type=Description)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadScenario(
            f"{DESCRIPTION} cannot be read: {error}. It has `extends` and `scenarios`, and may have `title` and"
            " `description`; simulators, interfaces, metrics and parameters are those of the dataset it extends."
        ) from None
    if said.extends not in FIELDS or said.extends not in datasets():
        raise BadScenario(f"{DESCRIPTION}: `extends` is one of {', '.join(sorted(FIELDS))}; not {said.extends!r:.80}.")
    if len(said.title) > 200 or len(said.description) > 4000:
        raise BadScenario(f"{DESCRIPTION}: `title` has up to 200 characters, `description` up to 4,000.")
    return msgspec.structs.replace(said, scenarios=file_names.checked(said.scenarios))


def written(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that say something: a scenario's number does not count those that are blank."""
    return (line for line in lines if len(line) > LINE or line.strip())


def checked(lines: Iterable[bytes], extends: str) -> Iterator[dict[str, Any]]:
    """Yield each scenario; raise BadScenario with the line's number for one that says what may not be said."""
    allowed = {**COMMON, **FIELDS[extends]}
    further = _FURTHER.get(extends)
    for number, line in enumerate(lines, 1):
        try:
            if len(line) > LINE:
                raise ValueError(f"it has more than {LINE} bytes")
            if number > MOST:
                raise ValueError(f"a dataset has at most {MOST:,} scenarios")
            given = msgspec.json.decode(line, type=dict[str, Any])
            _check(given, Field(kind="object", members=allowed), "")
            if given.setdefault("index", number - 1) != number - 1:
                raise ValueError(f"`index` is {number - 1} here, or left out")
            if further is not None:
                further(given)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise BadScenario(f"Line {number} of the scenarios: {error}.", line=number) from None
        yield given


def _check(value: Any, said: Field, where: str) -> None:
    name = f"`{where}`" if where else "it"
    if not _KINDS[said.kind](value):
        raise ValueError(f"{name} is no {said.kind}")
    if said.choices and value not in said.choices:
        raise ValueError(f"{name} is one of {', '.join(map(str, said.choices))}")
    size = len(value) if said.kind in {"string", "list"} else value
    if said.kind != "object" and (
        (said.low is not None and size < said.low) or (said.high is not None and size > said.high)
    ):
        what = "its length" if said.kind in {"string", "list"} else "it"
        raise ValueError(f"{name}: {what} lies in {said.low:g}..{said.high:g}")
    if said.pattern is not None and not re.fullmatch(said.pattern, value, re.ASCII):
        raise ValueError(f"{name} does not match {said.pattern}")
    if said.kind == "object":
        _check_members(value, said.members, f"{where}." if where else "")
    for at, item in enumerate(value if said.items is not None else ()):
        assert said.items is not None
        _check(item, said.items, f"{where}[{at}]")


def _check_members(value: Mapping[str, Any], members: Mapping[str, Field], where: str) -> None:
    for name, given in value.items():
        if name not in members:
            known = ", ".join(sorted(members))
            raise ValueError(f"`{(where + name)[:80]}` may not be said; these may: {known}")
        _check(given, members[name], where + name)
    if missing := [name for name, one in members.items() if one.required and name not in value]:
        raise ValueError(f"`{where}{missing[0]}` is missing")


@functools.cache
def _network(street: str) -> Any:
    """Return what is known of a street's edges."""
    from datasets.catalogue.car_street.scenarios import Network

    return Network.of((datasets()["car_street"].folder / "nets" / f"{street}.net.xml").read_text())


def _drivable(given: Mapping[str, Any]) -> None:
    """Check that a route leads along edges of its street, and begins on a lane that leads on."""
    network = _network(given["street"])
    route, start = given["route"], given["start"]
    for here, onto in pairwise(route):
        if here not in network.lengths or onto not in network.onward(here):
            raise ValueError(f"`route`: no way leads from {here} to {onto} on {given['street']}")
    lanes = network.leading(route[0], route[1])
    if start["lane"] not in lanes:
        raise ValueError(f"`start.lane`: from {route[0]} the lanes {', '.join(map(str, lanes))} lead on")
    if start["pos"] > network.lengths[route[0]]:
        raise ValueError(f"`start.pos`: {route[0]} is {network.lengths[route[0]]:g} m long")


def _on_a_lane(given: Mapping[str, Any]) -> None:
    """Refuse to begin beside the road."""
    config = given.get("options", {}).get("config", {})
    lanes = config.get("lanes_count", LANES)
    if config.get("initial_lane_id", 0) >= lanes:
        raise ValueError(f"`options.config.initial_lane_id` is below `lanes_count`, which is {lanes}")


_FURTHER: Mapping[str, Callable[[Mapping[str, Any]], None]] = {"car_street": _drivable, "highway": _on_a_lane}


def extended(built_in: Dataset, *, name: str, version: str, digest: str, said: Mapping[str, Any]) -> Dataset:
    """Return a user's dataset with the face of a built-in one; ``said`` is what its registration found out."""
    own = {
        "name": name,
        "version": version,
        "title": said["title"] or name,
        "description": said["description"],
        "tasks": said["tasks"],
        "max_tasks": said["tasks"],
        "scenarios": SCENARIOS,
        "listed": said["scenarios"],
        "files": [],
        "extends": built_in.name,
    }
    definition = dict(built_in.definition) | own
    return Dataset(name=name, version=version, digest=digest, folder=built_in.folder, definition=definition)


#: What the scenarios are called in the folder that an evaluator sees.
SCENARIOS = "scenarios.ndjson"
