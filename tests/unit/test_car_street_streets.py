"""Street networks: parsing, right of way, conflict areas, PET, and the published scenarios. Needs no libsumo."""

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path

import pytest

from datasets.catalogue import datasets
from runtimes.harness.simulators.base import Interface
from runtimes.harness.simulators.sumo.geometry import conflict_areas, crosswalk_areas, overlap, project
from runtimes.harness.simulators.sumo.post_encroachment import PostEncroachment
from runtimes.harness.simulators.sumo.street import Street, bits, link_of, read

FOLDER = Path(__file__).parents[2] / "datasets/catalogue/car_street"
STREETS = ("signal_grid", "arterial", "roundabout", "ramp_merge", "priority_junction", "crosswalk")


def street(name: str) -> Street:
    return read(FOLDER / "nets" / f"{name}.net.xml")


def scenario_lines() -> list[dict[str, object]]:
    return [json.loads(line) for line in (FOLDER / "scenarios.ndjson").read_text().splitlines()]


def test_link_index_counts_the_lanes_of_a_link() -> None:
    assert link_of(":j_4_1") == 5
    assert link_of(":cluster_a_b_11_0") == 11


def test_right_of_way_rows_are_parsed_from_the_right() -> None:
    assert bits("1000") == {3}
    assert bits("0011") == {0, 1}


def test_a_path_starts_only_from_lanes_that_lead_onto_the_next_edge() -> None:
    junction = street("priority_junction")
    assert junction.leading("wj", "js") == ("wj_0",)
    assert junction.leading("wj", "jn") == ("wj_1",)
    assert junction.leading("wj", None) == ("wj_0", "wj_1")
    path = junction.path("wj_0", "jn")
    assert path is not None
    assert path.lane == "wj_1"


def test_the_side_street_yields_to_both_directions_of_the_main_road() -> None:
    junction = street("priority_junction")
    yielded = {
        area.other.lane[:2] for area in conflict_areas(junction, junction.paths[("sj_0", "jw")]) if area.ego_yields
    }
    assert {"wj", "ej"} <= yielded
    main = conflict_areas(junction, junction.paths[("wj_0", "je")])
    assert main
    assert not any(area.ego_yields for area in main)
    assert all(area.other_yields for area in main)


def test_crossing_paths_overlap_in_their_middle_and_merging_paths_at_their_end() -> None:
    junction = street("priority_junction")
    turning = junction.paths[("sj_0", "je")]
    (merging,) = conflict_areas(junction, turning)
    assert merging.exit == pytest.approx(turning.length, abs=0.3)
    across = junction.paths[("sj_0", "jn")]
    crossing = next(area for area in conflict_areas(junction, across) if area.other.lane == "wj_0")
    assert 0.0 < crossing.entry < crossing.exit < across.length


def test_distant_polylines_do_not_overlap() -> None:
    assert overlap(((0, 0), (10, 0)), ((0, 5), (10, 5)), 2.0) is None
    crossing = overlap(((0, 0), (10, 0)), ((5, -5), (5, 5)), 2.0)
    assert crossing == pytest.approx((3.2, 6.8, 3.2, 6.8), abs=0.5)


def test_a_path_has_its_crosswalk_and_the_distance_along_the_crosswalk() -> None:
    crosswalk = street("crosswalk")
    kerbside, inner = (crosswalk_areas(crosswalk, crosswalk.paths[(lane, "kl")])[0] for lane in crosswalk.edges["wk"])
    assert kerbside.crosswalk.id == ":k_c0"
    assert kerbside.entry == 0.0
    # The crosswalk is 12.8 m long from pavement to pavement; lanes are numbered from its opposite side.
    assert kerbside.across > inner.across > 6.4
    assert project(kerbside.crosswalk.shape, 110.0, -4.8) == pytest.approx(11.2)


def test_pavements_are_not_lanes_for_cars() -> None:
    crosswalk = street("crosswalk")
    assert crosswalk.edges["wk"] == ("wk_1", "wk_2")
    assert [crosswalk.lanes[lane].rank for lane in crosswalk.edges["wk"]] == [0, 1]
    assert crosswalk.pavements["wk"][0] == "wk_0"


def encroachment_in_area() -> PostEncroachment:
    """Return the PET meter of a car of 4 m in an area from 3 to 7 m on its path and from 5 to 9 m on the other path."""
    junction = street("priority_junction")
    area = conflict_areas(junction, junction.paths[("sj_0", "jn")])[0]
    return PostEncroachment(replace(area, entry=3.0, exit=7.0, other_entry=5.0, other_exit=9.0), 4.0)


def test_pet_is_the_time_from_the_exit_of_the_other_vehicle_to_the_entry_of_the_ego() -> None:
    encroachment = encroachment_in_area()
    assert encroachment.update(0.0, [(8.0, 4.0)], 10.0) == inf
    assert encroachment.update(1.0, [(14.0, 10.0)], 11.0) == inf
    assert encroachment.update(3.5, [], 11.6) == pytest.approx(1.6)
    assert encroachment.update(4.5, [], 11.7) == inf


def test_pet_is_the_time_from_the_exit_of_the_ego_to_the_entry_of_the_other_vehicle() -> None:
    encroachment = encroachment_in_area()
    assert encroachment.update(5.0, [], 10.0) == inf
    assert encroachment.update(11.5, [(3.0, -1.0)], 11.0) == inf
    assert encroachment.update(14.0, [(5.5, 1.5)], 11.8) == pytest.approx(0.8)
    assert encroachment.update(16.0, [(7.5, 3.5)], 12.0) == inf


def test_longer_times_than_the_maximum_are_not_encroachments() -> None:
    encroachment = encroachment_in_area()
    assert encroachment.update(0.0, [(8.0, 4.0)], 0.0) == inf
    assert encroachment.update(3.5, [], 5.5) == inf
    assert encroachment.update(11.5, [], 8.0) == inf
    assert encroachment.update(40.0, [(6.0, 2.0)], 13.5) == inf
    assert encroachment.expired(13.5)


def test_there_are_288_scenarios_balanced_over_their_factors() -> None:
    scenarios = scenario_lines()
    assert [line["index"] for line in scenarios] == list(range(288))
    assert len({line["name"] for line in scenarios}) == 288
    assert Counter(line["street"] for line in scenarios) == dict.fromkeys(STREETS, 48)
    assert Counter(line["density"] for line in scenarios) == {"sparse": 96, "medium": 96, "dense": 96}
    assert Counter(line["mix"] for line in scenarios) == {"mixed": 144, "rough": 144}
    assert set(Counter((line["street"], line["event"]) for line in scenarios).values()) == {12}


@pytest.mark.parametrize("name", STREETS)
def test_every_route_can_be_driven_and_is_290_to_650_metres_long(name: str) -> None:
    net = street(name)
    for line in scenario_lines():
        if line["street"] != name:
            continue
        route, start = line["route"], line["start"]
        assert isinstance(route, list)
        assert isinstance(start, dict)
        for edge, next_edge in pairwise(route):
            assert net.leading(edge, next_edge), line["name"]
        lanes = net.edges[route[0]]
        assert lanes[start["lane"]] in net.leading(route[0], route[1])
        length = sum(net.lanes[net.edges[edge][0]].length for edge in route) - start["pos"]
        assert 290 <= length <= 650, line["name"]


def test_the_files_match_their_published_digests() -> None:
    dataset = datasets()["car_street"]
    dataset.verify()
    paths = {entry["path"] for entry in dataset.definition["files"]}
    assert paths == {"scenarios.ndjson", "types.add.xml", *(f"nets/{name}.net.xml" for name in STREETS)}
    assert all((FOLDER / "nets" / f"{name}.net.xml").stat().st_size < 70_000 for name in STREETS)


def test_every_entry_of_the_interface_has_a_range() -> None:
    interface = Interface.of(datasets()["car_street"].definition["interface"])
    assert interface.observation.shape == (32,)
    assert interface.action.shape == (2,)
    assert interface.observation.names[25:28] == ("stop_line", "light_red", "light_yellow")
    for space in (interface.observation, interface.action):
        assert all(low < high for low, high in zip(space.low, space.high, strict=True))
