"""Time to collision with pedestrians: hand-computed cases, and what SUMO says of the same encounters."""

import json
from itertools import pairwise
from math import inf
from random import Random
from typing import Any

import numpy as np
import pytest

from datasets.catalogue import versions
from runtimes.harness.simulators.base import Scenario
from tests.simulators.car_street import SPECS, second_version, simulator


@pytest.fixture
def time_to_contact() -> Any:
    simulator()  # SUMO can be imported from here on
    from runtimes.harness.simulators.sumo.time_to_collision import time_to_contact

    return time_to_contact


@pytest.mark.parametrize(
    ("ahead", "left", "along", "across", "expected"),
    [
        (20.25, 0.0, -10.0, 0.0, 2.0),  # stands 20 m before the bumper, in the middle of the lane
        (20.25, 1.1, -10.0, 0.0, 2.0),  # at the edge: half a car and half a pedestrian are 1.15 m
        (20.25, 1.2, -10.0, 0.0, inf),  # beside it
        (20.25, 0.0, -8.5, 0.0, 20 / 8.5),  # walks away in the lane at 1.5 m/s before a car at 10 m/s
        (20.25, -4.15, -10.0, 1.5, 2.0),  # crosses, is at the edge after 3 / 1.5 s, and the car is there then
        (17.25, -4.15, -10.0, 1.5, 2.0),  # crosses into the car's side: its front passes after 1.7 s
        (20.25, -7.15, -10.0, 1.5, inf),  # comes after the car has passed
        (40.25, -2.65, -10.0, 1.5, inf),  # has crossed before the car comes, 3.8 m take 2.5 s
        (40.25, -2.65, -10.0, 0.9, 4.0),  # crosses more slowly and is still there
        (-2.0, 3.15, 0.0, -1.0, 2.0),  # walks into the side of a car of its own speed along the road
        (-8.0, 0.0, -10.0, 0.0, inf),  # is behind it
        (0.0, 0.0, -1.0, 0.0, 0.0),  # touches it
        (10.25, 0.0, 0.0, 0.0, inf),  # keeps its distance
    ],
)
def test_a_time_to_contact_is_that_of_a_rectangle_and_a_square_that_keep_their_speeds(
    time_to_contact: Any, ahead: float, left: float, along: float, across: float, expected: float
) -> None:
    assert time_to_contact(ahead, left, along, across) == pytest.approx(expected)
    assert time_to_contact(ahead, -left, along, -across) == pytest.approx(expected), "both sides are alike"


def test_it_is_the_first_instant_at_which_they_overlap_in_small_steps(time_to_contact: Any) -> None:
    random = Random(3)
    hits = 0
    for _ in range(300):
        ahead, left = random.uniform(-10, 40), random.uniform(-8, 8)
        along, across = random.uniform(-15, 2), random.uniform(-3, 3)
        steps = (
            number / 1000
            for number in range(12_000)
            if -4.75 <= ahead + along * number / 1000 <= 0.25 and abs(left + across * number / 1000) <= 1.15
        )
        first, computed = next(steps, inf), time_to_contact(ahead, left, along, across)
        hits += first < inf
        if first < inf or computed < 11.9:  # a touch of a corner may be shorter than a step
            brief = first == inf and _is_brief(ahead, left, along, across)
            assert brief or first == pytest.approx(computed, abs=0.0011)
    assert hits > 30


def _is_brief(ahead: float, left: float, along: float, across: float) -> bool:
    """Whether a contact is of a corner only: a pedestrian who is a centimetre smaller would not be touched."""
    times = [
        ((edge - place) / speed)
        for place, speed, edges in ((ahead, along, (-4.75, 0.25)), (left, across, (-1.15, 1.15)))
        for edge in edges
        if speed
    ]
    return min(abs(one - other) for one in times for other in times if one is not other) < 0.002


@pytest.mark.parametrize(
    ("lane", "expected"),
    [(":B1_c0_0", True), (":B1_w0_0", False), (":x_c1_w0_0", False), ("", False), ("nowhere_0", False)],
)
def test_pedestrians_on_crossings_count_and_those_on_pavements_do_not(lane: str, expected: bool) -> None:
    from runtimes.harness.simulators.sumo.time_to_collision import on_carriageway

    world = second_version()
    world.reset(Scenario(index=0, seed=1, spec=SPECS[0]))
    assert on_carriageway(lane, world.street) is expected
    assert on_carriageway(world._step.lane, world.street), "a lane for cars"


def straight_on(world: Any, scenario: Scenario) -> tuple[list[float], dict[str, Any]]:
    """Drive on at the first speed; return the times to a pedestrian of all steps, and the metrics."""
    from runtimes.harness.simulators.sumo.time_to_collision import least_time_to_pedestrian

    world.reset(scenario)
    times, over = [], False
    while not over:
        _, over = world.step(np.zeros(2, np.float32))
        if not over:
            times.append(least_time_to_pedestrian(world.street, world._step.speed))
    return times, world.outcome(None)


def test_the_time_runs_down_to_the_collision_that_sumo_reports() -> None:
    world = second_version()
    runs = 0
    for line in SPECS:
        if line["event"] != "late_pedestrian":
            continue
        times, metrics = straight_on(world, Scenario(index=line["index"], seed=5, spec=line))
        if metrics["outcome"] != "collision" or not world._crash.pedestrian:
            continue
        runs += 1
        assert metrics["min_ttc_any"] == min([metrics["min_ttc"], *times])
        # While both keep their speeds the time falls by 0.1 s in a step; SUMO reports the collision with the next one.
        assert times[-1] <= 0.1, (line["name"], times[-4:])
        falls = [one - other for one, other in pairwise(times[-10:]) if inf > one > 0.1 and other < inf]
        assert falls and falls == pytest.approx([0.1] * len(falls), abs=0.01), (line["name"], times[-10:])
        assert metrics["min_ttc"] > metrics["min_ttc_any"], "the first version's metric does not see pedestrians"
    assert runs >= 3


def test_a_street_without_pedestrians_has_the_time_to_the_leader() -> None:
    world, random = second_version(), Random(2)
    for line in random.sample([line for line in SPECS if line["street"] == "arterial"], 4):
        times, metrics = straight_on(world, Scenario(index=line["index"], seed=1, spec=line))
        assert set(times) <= {inf}
        assert metrics["min_ttc_any"] == metrics["min_ttc"]


def test_a_car_that_stands_is_nobodys_time() -> None:
    from runtimes.harness.simulators.sumo.time_to_collision import least_time_to_pedestrian

    world = second_version()
    line = next(line for line in SPECS if line["event"] == "late_pedestrian")
    world.reset(Scenario(index=line["index"], seed=1, spec=line))
    assert least_time_to_pedestrian(world.street, 0.0) == inf


def test_both_versions_have_the_same_tasks_and_the_second_has_a_metric_more() -> None:
    first, second = versions()["car_street"]
    assert (first.version, second.version) == ("1", "2") and second.seeds == first.digest != second.digest
    names = [[metric["name"] for metric in each.definition["metrics"]] for each in (first, second)]
    assert [name for name in names[1] if name not in names[0]] == ["min_ttc_any"]
    scenario = Scenario(index=0, seed=9, spec=SPECS[0])
    measured = []
    for world in (simulator(), second_version()):
        world.reset(scenario)
        for _ in range(50):
            world.step(np.array([0.5, 0], np.float32))
        measured.append(world.outcome(None))
    assert measured[0].keys() == set(names[0]) and measured[1].keys() == set(names[1])
    assert json.dumps(measured[0]) == json.dumps({n: v for n, v in measured[1].items() if n != "min_ttc_any"})
