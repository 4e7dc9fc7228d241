"""What is read from the networks and worked out from their shapes. No simulator needed."""

import json
from collections import Counter
from itertools import pairwise
from math import inf
from pathlib import Path

import pytest

from datasets.catalogue import datasets
from datasets.catalogue.car_street.definition import ACTION, OBSERVATION
from runtimes.harness.simulators.base import Interface
from runtimes.harness.simulators.sumo.geometry import meetings, project, shared, stripes
from runtimes.harness.simulators.sumo.post_encroachment import Passage
from runtimes.harness.simulators.sumo.street import Street, bits, link_of, read

FOLDER = Path(__file__).parents[2] / "datasets/catalogue/car_street"
STREETS = ("signal_grid", "arterial", "roundabout", "ramp_merge", "priority_junction", "crosswalk")


def street(name: str) -> Street:
    return read(FOLDER / "nets" / f"{name}.net.xml")


def lines() -> list[dict[str, object]]:
    return [json.loads(line) for line in (FOLDER / "scenarios.ndjson").read_text().splitlines()]


def test_link_numbers_count_the_lanes_of_a_link() -> None:
    assert link_of(":j_4_1") == 5
    assert link_of(":cluster_a_b_11_0") == 11


def test_right_of_way_rows_are_read_from_the_right() -> None:
    assert bits("1000") == {3}
    assert bits("0011") == {0, 1}


def test_a_route_leads_from_some_lanes_and_not_from_others() -> None:
    junction = street("priority_junction")
    assert junction.leading("wj", "js") == ("wj_0",)
    assert junction.leading("wj", "jn") == ("wj_1",)
    assert junction.leading("wj", None) == ("wj_0", "wj_1")
    way = junction.path("wj_0", "jn")
    assert way is not None
    assert way.lane == "wj_1"


def test_the_side_street_yields_to_both_directions_of_the_main_road() -> None:
    junction = street("priority_junction")
    yielded = {
        meeting.other.lane[:2] for meeting in meetings(junction, junction.paths[("sj_0", "jw")]) if meeting.yields
    }
    assert {"wj", "ej"} <= yielded
    main = meetings(junction, junction.paths[("wj_0", "je")])
    assert main
    assert not any(meeting.yields for meeting in main)
    assert all(meeting.owed for meeting in main)


def test_ways_that_cross_share_ground_in_their_middle_and_ways_that_merge_at_their_end() -> None:
    junction = street("priority_junction")
    ours = junction.paths[("sj_0", "je")]
    (merging,) = meetings(junction, ours)
    assert merging.exit == pytest.approx(ours.length, abs=0.3)
    across = junction.paths[("sj_0", "jn")]
    crossing = next(meeting for meeting in meetings(junction, across) if meeting.other.lane == "wj_0")
    assert 0.0 < crossing.entry < crossing.exit < across.length


def test_lines_that_never_come_near_share_nothing() -> None:
    assert shared(((0, 0), (10, 0)), ((0, 5), (10, 5)), 2.0) is None
    crossing = shared(((0, 0), (10, 0)), ((5, -5), (5, 5)), 2.0)
    assert crossing == pytest.approx((3.2, 6.8, 3.2, 6.8), abs=0.5)


def test_a_way_passes_the_zebra_before_it_and_knows_how_far_across_it_is() -> None:
    zebra = street("crosswalk")
    kerbside, inner = (stripes(zebra, zebra.paths[(lane, "kl")])[0] for lane in zebra.edges["wk"])
    assert kerbside.zebra.id == ":k_c0"
    assert kerbside.entry == 0.0
    # Pavement to pavement is 12.8 m, numbered from the other side.
    assert kerbside.across > inner.across > 6.4
    assert project(kerbside.zebra.shape, 110.0, -4.8) == pytest.approx(11.2)


def test_pavements_are_no_lanes_for_cars() -> None:
    zebra = street("crosswalk")
    assert zebra.edges["wk"] == ("wk_1", "wk_2")
    assert [zebra.lanes[lane].rank for lane in zebra.edges["wk"]] == [0, 1]
    assert zebra.pavements["wk"][0] == "wk_0"


class Ground:
    """A passage over ground from 3 to 7 m on our way, 5 to 9 m on theirs, by a car of 4 m."""

    def __init__(self) -> None:
        junction = street("priority_junction")
        first = meetings(junction, junction.paths[("sj_0", "jn")])[0]
        values = {"entry": 3.0, "exit": 7.0, "other_entry": 5.0, "other_exit": 9.0, "yields": True, "owed": False}
        self.passage = Passage(type(first)(other=first.other, **values), 4.0)


def test_post_encroachment_counts_from_their_leaving_to_our_entering() -> None:
    passage = Ground().passage
    assert passage.note(0.0, [(8.0, 4.0)], 10.0) == inf
    assert passage.note(1.0, [(14.0, 10.0)], 11.0) == inf
    assert passage.note(3.5, [], 11.6) == pytest.approx(1.6)
    assert passage.note(4.5, [], 11.7) == inf


def test_post_encroachment_counts_from_our_leaving_to_their_entering() -> None:
    passage = Ground().passage
    assert passage.note(5.0, [], 10.0) == inf
    assert passage.note(11.5, [(3.0, -1.0)], 11.0) == inf
    assert passage.note(14.0, [(5.5, 1.5)], 11.8) == pytest.approx(0.8)
    assert passage.note(16.0, [(7.5, 3.5)], 12.0) == inf


def test_passages_long_apart_have_nothing_to_do_with_each_other() -> None:
    passage = Ground().passage
    assert passage.note(0.0, [(8.0, 4.0)], 0.0) == inf
    assert passage.note(3.5, [], 5.5) == inf
    assert passage.note(11.5, [], 8.0) == inf
    assert passage.note(40.0, [(6.0, 2.0)], 13.5) == inf
    assert passage.over(13.5)


def test_there_are_288_scenarios_balanced_over_what_makes_them() -> None:
    found = lines()
    assert [line["index"] for line in found] == list(range(288))
    assert len({line["name"] for line in found}) == 288
    assert Counter(line["street"] for line in found) == dict.fromkeys(STREETS, 48)
    assert Counter(line["density"] for line in found) == {"sparse": 96, "medium": 96, "dense": 96}
    assert Counter(line["mix"] for line in found) == {"mixed": 144, "rough": 144}
    assert set(Counter((line["street"], line["event"]) for line in found).values()) == {12}


@pytest.mark.parametrize("name", STREETS)
def test_every_route_can_be_driven_and_is_some_hundred_metres_long(name: str) -> None:
    net = street(name)
    for line in lines():
        if line["street"] != name:
            continue
        route, start = line["route"], line["start"]
        assert isinstance(route, list)
        assert isinstance(start, dict)
        for edge, onto in pairwise(route):
            assert net.leading(edge, onto), line["name"]
        lanes = net.edges[route[0]]
        assert lanes[start["lane"]] in net.leading(route[0], route[1])
        length = sum(net.lanes[net.edges[edge][0]].length for edge in route) - start["pos"]
        assert 290 <= length <= 650, line["name"]


def test_the_files_are_the_ones_that_were_published() -> None:
    dataset = datasets()["car_street"]
    dataset.verify()
    named = {entry["path"] for entry in dataset.definition["files"]}
    assert named == {"scenarios.ndjson", "types.add.xml", *(f"nets/{name}.net.xml" for name in STREETS)}
    assert all((FOLDER / "nets" / f"{name}.net.xml").stat().st_size < 70_000 for name in STREETS)


def test_the_interface_is_the_published_table() -> None:
    interface = Interface.of(datasets()["car_street"].definition["interface"])
    assert interface.observation.shape == (len(OBSERVATION),) == (32,)
    assert interface.action.shape == (len(ACTION),) == (2,)
    assert interface.observation.names[25:28] == ("stop_line", "light_red", "light_yellow")
    for space in (interface.observation, interface.action):
        assert all(low < high for low, high in zip(space.low, space.high, strict=True))
