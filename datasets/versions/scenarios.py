"""Users' datasets: a `dataset.json` that extends a built-in dataset, and scenarios validated against an allow-list.

Scenarios contain parameters only. A value that a simulator could take as the name of a file, module or class is not
allowed.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from common.errors import BadScenario
from datasets.catalogue import Dataset, datasets
from datasets.catalogue.car_street.street_network import StreetNetwork
from datasets.versions import file_names, openenv_environment, plants, scenario_fields
from datasets.versions.openenv_environment import OpenEnv
from datasets.versions.plants import Plant
from datasets.versions.scenario_fields import FieldRule
from datasets.versions.version_description import VersionDescription

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


_MEMBERS = ", ".join(f"`{name}`" for name in Description.__struct_fields__ if name != "extends")
#: Members that every scenario may have.
COMMON: Mapping[str, FieldRule] = {
    "index": FieldRule(kind="int", low=0, high=MOST),
    "name": FieldRule(kind="string", low=1, high=100, pattern=r"[A-Za-z0-9][A-Za-z0-9 ._+-]*"),
}
#: The dataset whose scenarios may take place on maps of users, the names of maps, and the most of them.
WITH_MAPS, MAP_NAME, MOST_MAPS = "car_street", re.compile(r"[a-z][a-z0-9_]{0,39}"), 100
#: The folder of a version with what the platform made of its maps: networks, scenarios, reports.
CONVERTED = "converted"
GENERATED = f"{CONVERTED}/scenarios.ndjson"

#: Lanes of highway-fast-v0 where a scenario does not set `lanes_count`.
LANES = 3


def parse_description(raw: bytes) -> Description:
    """Parse a user's `dataset.json`; raise BadScenario with the reason if it is invalid."""
    try:
        description = msgspec.json.decode(raw, type=Description)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadScenario(
            f"{DESCRIPTION} cannot be read: {error}. It has `extends`, and may have {_MEMBERS}; simulators, interfaces,"
            " metrics and parameters come from the dataset that it extends, or from its `plant` or environment."
        ) from None
    if description.extends not in (allowed := scenario_fields.extendable()):
        raise BadScenario(f"{DESCRIPTION}: `extends` is one of {', '.join(allowed)}; not {description.extends!r:.80}.")
    if len(description.title) > 200 or len(description.description) > 4000:
        raise BadScenario(f"{DESCRIPTION}: `title` has up to 200 characters, `description` up to 4,000.")
    if not (description.title.isprintable() and all(c.isprintable() or c in "\t\r\n" for c in description.description)):
        raise BadScenario(f"{DESCRIPTION}: `title` and `description` have characters with glyphs only.")
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
        plant = replace(plant, file=file_names.validated(plant.file))
    return replace(description, scenarios=file_names.validated(description.scenarios), plant=plant)


def _with_maps(description: Description) -> Description:
    """Return the description of a dataset with maps, its names validated. Raise BadScenario."""
    if description.extends != WITH_MAPS:
        raise BadScenario(
            f"{DESCRIPTION}: `maps` are for datasets that extend {WITH_MAPS}, and `generate` for those with `maps` or"
            f" of {openenv_environment.TEMPLATE}; give {description.extends} a file of `scenarios`."
        )
    if not 1 <= len(description.maps) <= MOST_MAPS:
        raise BadScenario(f"{DESCRIPTION}: `maps` lists 1 to {MOST_MAPS} maps; register several datasets for more.")
    names = [entry.name for entry in description.maps]
    for name in names:
        if not MAP_NAME.fullmatch(name):
            raise BadScenario(
                f"{DESCRIPTION}: {name!r:.80} is not a name of a map; it has lower-case letters, digits and _, begins"
                " with a letter and has up to 40 characters."
            )
        if name in scenario_fields.of(WITH_MAPS)["street"].choices:
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
    return replace(
        description,
        scenarios=file_names.validated(description.scenarios) if description.scenarios else GENERATED,
        maps=tuple(replace(entry, file=file_names.validated(entry.file)) for entry in description.maps),
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
        return replace(description, scenarios=scenarios, openenv=declared)
    generate = generate or Generation(count=openenv_environment.SEEDS)
    if not 1 <= generate.count <= MOST or generate.seed:
        raise BadScenario(
            f"{DESCRIPTION}: `generate.count` is 1 to {MOST:,}; scenarios get their seeds from the simulation's `seed`,"
            " so that `generate.seed` is left out."
        )
    return replace(description, scenarios=GENERATED, openenv=declared, generate=generate)


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
    plant: object = None,
) -> Iterator[dict[str, Any]]:
    """Yield each scenario as a dict; raise BadScenario with the line's number for an invalid scenario.

    ``maps``: networks of the dataset's own maps, by name; ``plant``: that of the dataset's definition.
    """
    allowed = {**COMMON, **scenario_fields.of(extends)}
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
            scenario_fields.check(scenario, FieldRule(kind="object", members=allowed))
            if scenario.setdefault("index", number - 1) != number - 1:
                raise ValueError(f"`index` is {number - 1} on this line, or left out")
            if semantic_check is not None:
                semantic_check(scenario)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise BadScenario(f"Line {number} of the scenarios: {error}.", line=number) from None
        yield scenario


@functools.cache
def _network(street: str) -> StreetNetwork:
    """Return the parsed road network of a built-in street."""
    return StreetNetwork.read(datasets()["car_street"].folder / "nets" / f"{street}.net.xml")


def _map_rules(maps: Mapping[str, StreetNetwork]) -> Mapping[str, FieldRule]:
    """Return the rules of members that differ for datasets with maps: names of edges are those of the map."""
    rules = scenario_fields.of(WITH_MAPS)
    edge = FieldRule(kind="string", low=1, high=200)
    return {
        "street": replace(rules["street"], choices=(*maps, *rules["street"].choices)),
        "route": replace(rules["route"], low=1, items=edge),
    }


class _PlantParameter(msgspec.Struct):
    """A parameter or start value of a plant, as its definition has it."""

    name: str
    type: str
    low: int | float | None
    high: int | float | None
    shape: tuple[int, ...] | None


class _DefinedPlant(msgspec.Struct):
    parameters: tuple[_PlantParameter, ...]


def _plant_rules(plant: object) -> Mapping[str, FieldRule]:
    """Return the rules of the parameters and start values that scenarios of a plant may set."""
    members = {}
    for entry in msgspec.convert(plant, _DefinedPlant).parameters:
        rule = FieldRule(kind=plants.kind_of(entry.type), low=entry.low, high=entry.high)
        if entry.shape is not None:
            size = math.prod(entry.shape)
            rule = FieldRule(kind="list", low=size, high=size, items=rule)
        members[entry.name] = rule
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


def extend(built_in: Dataset, *, name: str, version: str, digest: str, description: Mapping[str, object]) -> Dataset:
    """Return a user's dataset with the definition of a built-in one; ``description``: see `VersionDescription`."""
    described = msgspec.convert(description, VersionDescription)
    own: dict[str, object] = {
        "name": name,
        "version": version,
        "title": described.title or name,
        "description": described.description,
        "files": [],
        "extends": built_in.name,
    }
    if described.scenarios is not None:
        own |= {"tasks": described.tasks, "max_tasks": described.tasks}
        own |= {"scenarios": SCENARIOS, "listed": described.scenarios}
    if described.maps:
        own["maps"] = described.maps
    if described.openenv:
        own |= openenv_environment.definition(described.openenv)
    definition = dict(built_in.definition) | dict(described.definition) | own
    definition.pop("template", None)
    return Dataset(name=name, version=version, digest=digest, folder=built_in.folder, definition=definition)


#: File name of the scenarios in the folder that an evaluator sees.
SCENARIOS = "scenarios.ndjson"
