"""Maps without netconvert: what is dropped, lanes for cars, scenarios that are drawn, lanelets as edges."""

import json
from pathlib import Path

import pytest

from datasets.catalogue import datasets
from datasets.catalogue.car_street import map_scenarios
from datasets.catalogue.car_street.street_network import StreetNetwork, permits_cars
from datasets.versions import commonroad, map_files
from datasets.versions.scenarios import validated
from datasets.versions.xml_scan import BadXml
from runtimes.converters.netconvert import summarized
from tests.maps import extract, planning_problem, town

NETS = datasets()["car_street"].folder / "nets"


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, True),
        ({"allow": "pedestrian"}, False),
        ({"allow": "bus passenger"}, True),
        ({"allow": "bus taxi"}, False),
        ({"disallow": "tram rail"}, True),
        ({"disallow": "passenger truck"}, False),
        ({"disallow": "all"}, False),
    ],
)
def test_a_lane_is_for_cars_if_its_permissions_say_so(attributes: dict[str, str], expected: bool) -> None:
    assert permits_cars(attributes) is expected


@pytest.mark.parametrize(("source", "format"), [(town(), "opendrive"), (extract(), "osm"), (b"<net/>", "sumo")])
def test_the_root_element_tells_the_format(source: bytes, format: str) -> None:
    assert map_files.read([source[:50], source[50:]]).format == format


def test_left_hand_traffic_is_found_where_a_map_says_it() -> None:
    assert map_files.read([town(rule="LHT")]).left_hand
    assert map_files.read([b'<net lefthand="true"/>']).left_hand
    assert not map_files.read([town()]).left_hand


def test_what_a_map_declares_about_itself_is_refused_before_it_is_expanded() -> None:
    with pytest.raises(BadXml, match="document type"):
        map_files.read([b'<!DOCTYPE osm [<!ENTITY a "b">]><osm>&a;</osm>'])


@pytest.mark.parametrize("street", ["signal_grid", "arterial", "ramp_merge"])
def test_drawn_scenarios_are_valid_and_a_function_of_network_name_and_seed(street: str) -> None:
    network = StreetNetwork.read(NETS / f"{street}.net.xml")
    lines = map_scenarios.generate("town", network, 60, 5)
    assert lines == map_scenarios.generate("town", StreetNetwork.read(NETS / f"{street}.net.xml"), 60, 5)
    assert lines != map_scenarios.generate("town", network, 60, 6)
    checked = list(validated((json.dumps(line).encode() for line in lines), "car_street", {"town": network}))
    assert checked == lines
    assert {line["density"] for line in lines} == {"sparse", "medium", "dense"}
    assert len({line["event"] for line in lines}) >= 3
    assert len({tuple(line["route"]) for line in lines}) >= 3


def test_a_road_with_fewer_metres_than_a_drive_needs_has_no_route() -> None:
    network = StreetNetwork.of(
        '<net><edge id="a" to="j"><lane id="a_0" index="0" speed="13.9" length="50" shape="0,0 50,0"/></edge></net>'
    )
    with pytest.raises(map_scenarios.NoRoute):
        map_scenarios.generate("town", network, 5, 0)


def test_lanes_between_which_others_drive_are_no_part_of_routes() -> None:
    lanes = "".join(
        f'<lane id="a_{index}" index="{index}" {allow} speed="13.9" length="50" shape="0,0 50,0"/>'
        for index, allow in enumerate(("", 'allow="bus"', ""))
    )
    assert not StreetNetwork.of(f'<net><edge id="a" to="j">{lanes}</edge></net>').lengths


def test_lanelets_side_by_side_are_an_edge_with_its_lanes_from_the_right(tmp_path: Path) -> None:
    (tmp_path / "lanes.xml").write_bytes(planning_problem())
    scenario = commonroad.read(tmp_path / "lanes.xml")
    assert scenario.files["edges"].count("<edge ") == 2
    assert '<lane index="0" width="3.50" speed="20.00"/><lane index="1"' in scenario.files["edges"]
    assert 'from="e1" to="e3" fromLane="1" toLane="1"' in scenario.files["connections"]
    (problem,) = scenario.problems
    assert (problem.position, problem.speed, problem.goal) == ((1020.0, 1.7), 15.0, (1400.0, 1.75))


def test_warnings_of_netconvert_are_counted_by_what_they_are_about() -> None:
    lines = (
        "Warning: Edge '36' has no lanes.",
        "Warning: Found sharp turn with radius 8.09 at the start of edge '-3#2'.",
        "Warning: Found sharp turn with radius 8.09 at the end of edge '3#2'.",
        "Warning: Found sharp turn with radius 7 at the end of edge '4'.",
        "Warning: 9 total messages of type: Found sharp turn with radius % at the end of edge '%'.",
        "Warning: Something new\x1b[31m.",
        "Success.",
    )
    assert [(message.what, message.count) for message in summarized(lines)] == [
        ("roads without a lane for cars", 1),
        ("sharp turns", 9),
        ("netconvert: Something new?[31m.", 1),
    ]
