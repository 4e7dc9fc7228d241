"""User scenarios: all features of built-in scenarios are accepted, anything beyond parameters is refused."""

import json
from itertools import repeat
from typing import Any

import pytest

from common.errors import BadScenario
from datasets.catalogue import datasets
from datasets.versions import scenario_fields
from datasets.versions.manifest import lines as split_lines
from datasets.versions.scenarios import LINE, non_blank, parse_description, validated


def built_in_scenarios(dataset: str) -> list[dict[str, Any]]:
    entry = datasets()[dataset]
    return list(entry.scenarios(0, 1000)) if entry.definition.get("scenarios") else [{"index": 0}]


def lines(*scenarios: Any) -> list[bytes]:
    return [json.dumps(scenario).encode() for scenario in scenarios]


@pytest.mark.parametrize("byte", [b"x", b" "])
def test_an_endless_line_is_refused_before_it_fills_memory(byte: bytes) -> None:
    endless = repeat(byte * 4096)
    with pytest.raises(BadScenario, match="bytes"):
        list(validated(non_blank(split_lines(endless, LINE)), "noop"))


def test_every_built_in_dataset_can_be_extended() -> None:
    # The program of a gang has no scenarios.
    with_scenarios = {name for name, dataset in datasets().items() if not dataset.definition.get("gang")}
    assert set(scenario_fields.extendable()) == with_scenarios


@pytest.mark.parametrize("dataset", scenario_fields.extendable())
def test_user_scenarios_accept_every_member_of_built_in_scenarios(dataset: str) -> None:
    shipped = built_in_scenarios(dataset)
    assert list(validated(lines(*shipped), dataset)) == shipped


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"street": "../../etc"}, "street"),
        ({"route": ["nowhere", "either"]}, "is not connected"),
        ({"route": ["<xml/>", "b"]}, "match"),
        ({"start": {"lane": 5, "pos": 1.0, "speed": 1.0}}, "lane"),
        ({"start": {"lane": 0, "pos": 1.0, "speed": 1.0, "type": "x"}}, "start.type"),
        ({"vehicles": 1e9}, "vehicles"),
        ({"vehicles": True}, "vehicles"),
        ({"event": "os.system"}, "event"),
        ({"time_limit": float("1e300")}, "time_limit"),
        ({"configuration": "x.sumocfg"}, "configuration"),
    ],
)
def test_a_street_accepts_parameters_only(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadScenario, match=message):
        list(validated(lines(built_in_scenarios("car_street")[0] | change), "car_street"))


@pytest.mark.parametrize(
    "config",
    [
        {"other_vehicles_type": "os.system"},
        {"observation": {"type": "Kinematics"}},
        {"action": {"type": "x"}},
        {"lanes_count": 10**9},
        {"lanes_count": 2, "initial_lane_id": 2},
        {"initial_lane_id": 3},
        {"vehicles_density": "1"},
    ],
)
def test_a_highway_accepts_numbers_and_no_classes(config: dict[str, Any]) -> None:
    with pytest.raises(BadScenario):
        list(validated(lines({"options": {"config": config}}), "highway"))


@pytest.mark.parametrize(
    "line",
    [b"[]", b"{", b"\xff", b'{"name": "\\ud800"}', b'{"a":' * 5000, b'{"name": NaN}', b'{"name":"' + b"x" * 20_000],
)
def test_an_invalid_line_is_refused_with_its_number(line: bytes) -> None:
    with pytest.raises(BadScenario, match="Line 2") as error:
        list(validated([b"{}", line], "noop"))
    assert error.value.members == {"line": 2}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b'{"extends": "gymnasium.make", "scenarios": "x"}',
        b'{"extends": "noop"}',
        b'{"extends": "noop", "scenarios": "x", "env": "os:system"}',
        b'{"extends": "noop", "scenarios": "x", "params": {}}',
        b"[" * 20_000,
    ],
)
def test_a_description_accepts_only_its_fields(raw: bytes) -> None:
    with pytest.raises(BadScenario):
        parse_description(raw)


@pytest.mark.parametrize("text", ["a\0b", "a\u202eb", "\x1b[2J", "a\u200bb"])
def test_a_title_and_a_description_have_characters_with_glyphs_only(text: str) -> None:
    for member in ("title", "description"):
        with pytest.raises(BadScenario, match="characters with glyphs"):
            parse_description(json.dumps({"extends": "noop", "scenarios": "x", member: text}).encode())
    spoken = {"extends": "noop", "scenarios": "x", "title": "Straße, 雨", "description": "Two\n\tlines"}
    assert parse_description(json.dumps(spoken).encode()).description == spoken["description"]


def test_generated_scenarios_of_a_dataset_without_maps_are_refused_by_their_member() -> None:
    with pytest.raises(BadScenario, match="`generate` for those with `maps` or of openenv; give cartpole a file"):
        parse_description(b'{"extends": "cartpole", "generate": {"count": 3}}')


def test_the_refusal_of_an_unknown_member_lists_all_that_there_are() -> None:
    with pytest.raises(BadScenario) as refused:
        parse_description(b'{"extends": "noop", "scenario": "x"}')
    members = ("extends", "scenarios", "title", "description", "maps", "generate", "plant", "openenv")
    assert all(f"`{member}`" in str(refused.value) for member in members)
