"""Users' datasets: a `dataset.json` that extends a built-in dataset, and scenarios validated against an allow-list.

Scenarios contain parameters only. A value that a simulator could take as the name of a file, module or class is not
allowed.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import msgspec

from common.errors import BadScenario
from datasets.catalogue import Dataset, datasets, mujoco, pettingzoo
from datasets.catalogue.car_street.street_network import StreetNetwork
from datasets.versions import file_names, openenv_environment, plants
from datasets.versions.openenv_environment import OpenEnv
from datasets.versions.plants import Plant

#: The file that makes a set of files a dataset for simulations, and the most bytes of it that are read.
DESCRIPTION, LONGEST = "dataset.json", 64 << 10
#: The most bytes of one scenario, and scenarios of a dataset: the evaluator holds them all in memory.
LINE, MOST = 16 << 10, 100_000


class MapFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A map among the files of a dataset, and the name by which scenarios call it; `format` is found if left out."""

    file: str
    name: str
    format: str = ""


class Generation(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Scenarios that the platform draws: how many on each map, from which seed."""

    count: int = 200
    seed: int = 0


class Description(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A user's `dataset.json`."""

    extends: str
    scenarios: str = ""
    title: str = ""
    description: str = ""
    maps: tuple[MapFile, ...] = ()
    generate: Generation | None = None
    plant: Plant | None = None
    openenv: OpenEnv | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldRule:
    """Allowed values of one member of a scenario. ``low`` and ``high`` also bound the lengths of strings and lists.

    ``free``: an object whose members are those of the user's own program.
    """

    kind: str
    low: float | None = None
    high: float | None = None
    choices: tuple[Any, ...] = ()
    pattern: str | None = None
    members: Mapping[str, "FieldRule"] = field(default_factory=dict)
    items: "FieldRule | None" = None
    required: bool = False
    free: bool = False


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "bool": lambda value: isinstance(value, bool),
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

#: The dataset whose scenarios may take place on maps of users, the names of maps, and the most of them.
WITH_MAPS, MAP_NAME, MOST_MAPS = "car_street", re.compile(r"[a-z][a-z0-9_]{0,39}"), 100
#: The folder of a version with what the platform made of its maps: networks, scenarios, reports.
CONVERTED = "converted"
GENERATED = f"{CONVERTED}/scenarios.ndjson"

#: Lanes of highway-fast-v0 where a scenario does not set `lanes_count`.
LANES = 3
#: Of MuJoCo tasks: how far a scenario's start may differ from the task's own.
_START = FieldRule(kind="object", members={"reset_noise_scale": FieldRule(kind="float", low=0.0, high=1.0)})
#: Allowed members of a scenario by built-in dataset; a dataset that is missing here cannot be extended.
FIELDS: Mapping[str, Mapping[str, FieldRule]] = {
    **{name: {} if task.noise is None else {"kwargs": _START} for name, task in mujoco.ALL.items()},
    **{
        name: {
            "agent": FieldRule(kind="string", choices=environment.agents),
            "others": FieldRule(kind="string", choices=("random", "still")),
        }
        for name, environment in pettingzoo.ALL.items()
    },
    "noop": {},
    plants.TEMPLATE: {},  # of each plant those that its dataset declares
    openenv_environment.TEMPLATE: {"reset": FieldRule(kind="object", free=True)},
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
        "radius": FieldRule(kind="float", low=50.0, high=5_000.0),
    },
}


def parse_description(raw: bytes) -> Description:
    """Parse a user's `dataset.json`; raise BadScenario with the reason if it is invalid."""
    try:
        description = msgspec.json.decode(raw, type=Description)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadScenario(
            f"{DESCRIPTION} cannot be read: {error}. It has `extends` and `scenarios` (or `maps`), and may have"
            " `title` and `description`; simulators, interfaces, metrics and parameters come from the dataset that it"
            " extends, or from its `plant`."
        ) from None
    if description.extends not in FIELDS or description.extends not in datasets():
        allowed = ", ".join(sorted(FIELDS))
        raise BadScenario(f"{DESCRIPTION}: `extends` is one of {allowed}; not {description.extends!r:.80}.")
    if len(description.title) > 200 or len(description.description) > 4000:
        raise BadScenario(f"{DESCRIPTION}: `title` has up to 200 characters, `description` up to 4,000.")
    if (description.plant is not None) != (description.extends == plants.TEMPLATE):
        raise BadScenario(f"{DESCRIPTION}: datasets that extend {plants.TEMPLATE} have a `plant`, and no others.")
    if description.extends == openenv_environment.TEMPLATE:
        return _with_environment(description)
    if description.openenv is not None:
        raise BadScenario(f"{DESCRIPTION}: `openenv` is for datasets that extend {openenv_environment.TEMPLATE}.")
    if description.maps or description.generate is not None:
        return _with_maps(description)
    if not description.scenarios:
        raise BadScenario(f"{DESCRIPTION}: `scenarios` is missing: the file with a scenario on each line.")
    plant = description.plant
    if plant is not None:
        plant = msgspec.structs.replace(plant, file=file_names.validated(plant.file))
    return msgspec.structs.replace(description, scenarios=file_names.validated(description.scenarios), plant=plant)


def _with_maps(description: Description) -> Description:
    """Return the description of a dataset with maps, its names validated. Raise BadScenario."""
    if description.extends != WITH_MAPS:
        raise BadScenario(f"{DESCRIPTION}: `maps` are for datasets that extend {WITH_MAPS}.")
    if not 1 <= len(description.maps) <= MOST_MAPS:
        raise BadScenario(f"{DESCRIPTION}: `maps` lists 1 to {MOST_MAPS} maps; register several datasets for more.")
    names = [entry.name for entry in description.maps]
    for name in names:
        if not MAP_NAME.fullmatch(name):
            raise BadScenario(
                f"{DESCRIPTION}: {name!r:.80} is not a name of a map; it has lower-case letters, digits and _, begins"
                " with a letter and has up to 40 characters."
            )
        if name in _STREETS:
            raise BadScenario(f"{DESCRIPTION}: the street {name} is built in; give the map another name.")
        if names.count(name) > 1:
            raise BadScenario(f"{DESCRIPTION}: two maps have the name {name}.")
    if description.scenarios and description.generate is not None:
        raise BadScenario(f"{DESCRIPTION}: it has `scenarios` or `generate`, not both.")
    generate = description.generate or Generation()
    if not 1 <= generate.count <= MOST // len(names) or not 0 <= generate.seed < 2**31:
        raise BadScenario(
            f"{DESCRIPTION}: `generate.count` is 1 to {MOST // len(names):,} for each of {len(names)} maps, and"
            " `generate.seed` 0 to 2147483647."
        )
    return msgspec.structs.replace(
        description,
        scenarios=file_names.validated(description.scenarios) if description.scenarios else GENERATED,
        maps=tuple(msgspec.structs.replace(entry, file=file_names.validated(entry.file)) for entry in description.maps),
        generate=None if description.scenarios else generate,
    )


def _with_environment(description: Description) -> Description:
    """Return the description of a dataset with an environment, which has scenarios in a file or a number of seeds."""
    declared, generate = description.openenv or OpenEnv(), description.generate
    openenv_environment.check(declared)
    if description.maps:
        raise BadScenario(f"{DESCRIPTION}: `maps` are for datasets that extend {WITH_MAPS}.")
    if description.scenarios and generate is not None:
        raise BadScenario(f"{DESCRIPTION}: it has `scenarios` or `generate`, not both.")
    if description.scenarios:
        scenarios = file_names.validated(description.scenarios)
        return msgspec.structs.replace(description, scenarios=scenarios, openenv=declared)
    generate = generate or Generation(count=openenv_environment.SEEDS)
    if not 1 <= generate.count <= MOST or generate.seed:
        raise BadScenario(
            f"{DESCRIPTION}: `generate.count` is 1 to {MOST:,}; scenarios get their seeds from the simulation's `seed`,"
            " so that `generate.seed` is left out."
        )
    return msgspec.structs.replace(description, scenarios=GENERATED, openenv=declared, generate=generate)


def network_path(name: str) -> str:
    """Return the path, within a version, of the network that was made of a map."""
    return f"{CONVERTED}/{name}.net.xml"


def non_blank(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that are not blank; scenarios are numbered without blank lines. Overlong lines are kept."""
    return (line for line in lines if len(line) > LINE or line.strip())


def validated(
    lines: Iterable[bytes],
    extends: str,
    maps: Mapping[str, StreetNetwork] | None = None,
    plant: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield each scenario as a dict; raise BadScenario with the line's number for an invalid scenario.

    ``maps``: networks of the dataset's own maps, by name; ``plant``: that of the dataset's definition.
    """
    allowed = {**COMMON, **FIELDS[extends]}
    semantic_check = _SEMANTIC_CHECKS.get(extends)
    if maps:
        allowed |= _map_rules(maps)
        semantic_check = functools.partial(_check_on_map, maps)
    if plant is not None:
        allowed |= _plant_rules(plant)
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
    if rule.kind == "bool":
        return
    if rule.choices and value not in rule.choices:
        raise ValueError(f"{name} is one of {', '.join(map(str, rule.choices))}")
    size = len(value) if rule.kind in {"string", "list"} else value
    if rule.kind != "object" and (
        (rule.low is not None and size < rule.low) or (rule.high is not None and size > rule.high)
    ):
        subject = "its length" if rule.kind in {"string", "list"} else "it"
        low, high = ("" if bound is None else f"{bound:g}" for bound in (rule.low, rule.high))
        raise ValueError(f"{name}: {subject} lies in {low}..{high}")
    if rule.pattern is not None and not re.fullmatch(rule.pattern, value, re.ASCII):
        raise ValueError(f"{name} does not match {rule.pattern}")
    if rule.kind == "object" and not rule.free:
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
def _network(street: str) -> StreetNetwork:
    """Return the parsed road network of a built-in street."""
    return StreetNetwork.read(datasets()["car_street"].folder / "nets" / f"{street}.net.xml")


def _map_rules(maps: Mapping[str, StreetNetwork]) -> Mapping[str, FieldRule]:
    """Return the rules of members that differ for datasets with maps: names of edges are those of the map."""
    rules = FIELDS[WITH_MAPS]
    edge = FieldRule(kind="string", low=1, high=200)
    return {
        "street": replace(rules["street"], choices=(*maps, *_STREETS)),
        "route": replace(rules["route"], low=1, items=edge),
    }


def _plant_rules(plant: Mapping[str, Any]) -> Mapping[str, FieldRule]:
    """Return the rules of the parameters and start values that scenarios of a plant may set."""
    members = {}
    for entry in plant["parameters"]:
        rule = FieldRule(kind=plants.kind_of(entry["type"]), low=entry["low"], high=entry["high"])
        if entry["shape"] is not None:
            size = math.prod(entry["shape"])
            rule = FieldRule(kind="list", low=size, high=size, items=rule)
        members[entry["name"]] = rule
    return {"parameters": FieldRule(kind="object", members=members)}


def _check_on_map(maps: Mapping[str, StreetNetwork], scenario: Mapping[str, Any]) -> None:
    """Check a scenario of a dataset with maps."""
    network = maps.get(scenario["street"])
    if network is None:
        _check_route(scenario)
        return
    if scenario.get("pedestrians") or scenario["event"] == "late_pedestrian":
        raise ValueError("`pedestrians`: converted maps have no pavements and crossings, and so no pedestrians")
    _check_route_on(network, scenario)


def _check_route(scenario: Mapping[str, Any]) -> None:
    """Check that a route follows connected edges of its built-in street, and that its start lane leads along it."""
    _check_route_on(_network(scenario["street"]), scenario)


def _check_route_on(network: StreetNetwork, scenario: Mapping[str, Any]) -> None:
    route, start = scenario["route"], scenario["start"]
    first = route[0]
    for edge, next_edge in pairwise(route):
        if edge not in network.lengths or next_edge not in network.onward(edge):
            raise ValueError(f"`route`: {edge} is not connected to {next_edge} on {scenario['street']}")
    if first not in network.lengths:
        raise ValueError(f"`route`: there is no road {first} for cars on {scenario['street']}")
    lanes = network.leading(first, route[1]) if len(route) > 1 else list(range(network.lanes[first]))
    if start["lane"] not in lanes:
        leads = f"lead to {route[1]}" if len(route) > 1 else "are for cars"
        raise ValueError(f"`start.lane`: on {first} only the lanes {', '.join(map(str, lanes))} {leads}")
    if start["pos"] > network.lengths[first]:
        raise ValueError(f"`start.pos`: {first} is {network.lengths[first]:g} m long")


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
    if maps := description.get("maps"):
        own["maps"] = maps
    if environment := description.get("openenv"):
        own |= openenv_environment.definition(environment)
    definition = dict(built_in.definition) | description.get("definition", {}) | own
    definition.pop("template", None)
    return Dataset(name=name, version=version, digest=digest, folder=built_in.folder, definition=definition)


#: File name of the scenarios in the folder that an evaluator sees.
SCENARIOS = "scenarios.ndjson"
