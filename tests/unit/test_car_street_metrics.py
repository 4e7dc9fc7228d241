"""Driving metrics and fault attribution: score, TTC, RSS, comfort, speeding. Needs no libsumo."""

import json
from dataclasses import replace
from itertools import pairwise
from math import inf, sqrt
from pathlib import Path

import pytest

from runtimes.harness.simulators.sumo.clock import DT
from runtimes.harness.simulators.sumo.drive_metrics import Drive, Ending, metrics, penalty, rss_distance
from runtimes.harness.simulators.sumo.fault import Crash, at_fault

DATASET = Path(__file__).parents[2] / "datasets/catalogue/car_street/dataset.json"

REAR = Crash(kind="collision", ego_is_collider=True, ego_speed=8.0)
JUNCTION = Crash(kind="junction", ego_is_collider=True, ego_speed=8.0)
ARRIVED = Ending(outcome="arrived", route=400.0, limit=13.9)


@pytest.mark.parametrize(
    ("crash", "expected"),
    [
        (REAR, True),
        (replace(REAR, ego_is_collider=False), False),
        (replace(REAR, ego_is_collider=False, changing_lane=True), True),
        (replace(REAR, kind="side"), False),
        (replace(REAR, kind="side", changing_lane=True), True),
        (replace(REAR, kind="frontal"), True),
        (replace(REAR, kind="crossing", pedestrian=True), True),
        (JUNCTION, False),
        (replace(JUNCTION, had_to_yield=True), True),
        (replace(JUNCTION, had_to_yield=True, entered_on="G"), False),
        (replace(JUNCTION, had_to_yield=True, entered_on="g"), True),
        (replace(JUNCTION, entered_on="r"), True),
        (replace(JUNCTION, entered_on="u"), True),
        (replace(JUNCTION, entered_on="y"), False),
        (replace(JUNCTION, ran_into_rear=True), True),
    ],
)
def test_fault_follows_the_rules_of_the_road(crash: Crash, expected: bool) -> None:
    assert at_fault(crash) is expected


@pytest.mark.parametrize("kind", ["collision", "frontal", "side", "junction", "crossing"])
def test_a_standing_ego_is_never_at_fault(kind: str) -> None:
    crash = Crash(
        kind=kind,
        ego_is_collider=True,
        ego_speed=0.0,
        pedestrian=kind == "crossing",
        changing_lane=True,
        entered_on="r",
        had_to_yield=True,
    )
    assert not at_fault(crash)


def test_on_a_junction_sumos_collider_does_not_determine_the_fault() -> None:
    for ego_yields in (False, True):
        collider = replace(JUNCTION, had_to_yield=ego_yields, ego_is_collider=True)
        victim = replace(JUNCTION, had_to_yield=ego_yields, ego_is_collider=False)
        assert at_fault(collider) == at_fault(victim) == ego_yields


def test_the_score_is_completion_over_penalty() -> None:
    drive = Drive(driven=200.0, steps=100)
    crash = Ending(outcome="collision", route=400.0, limit=13.9, collision=True, at_fault=True)
    assert metrics(drive, crash)["score"] == pytest.approx(50.0 / 1.7)
    assert metrics(drive, replace(crash, pedestrian=True))["score"] == pytest.approx(50.0 / 2.0)
    assert metrics(drive, replace(crash, at_fault=False))["score"] == pytest.approx(50.0)
    timeout = Ending(outcome="timeout", route=400.0, limit=13.9)
    assert metrics(drive, timeout)["score"] == pytest.approx(50.0 / 1.4)
    drive.red_lights = 2
    assert metrics(drive, ARRIVED)["score"] == pytest.approx(100.0 / 1.8)


def test_each_further_infraction_costs_less_but_something() -> None:
    scores = [100.0 / penalty(ARRIVED, red) for red in range(5)]
    losses = [before - after for before, after in pairwise(scores)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] > 0


@pytest.mark.parametrize("fault", ["failed", "crashed", "timed_out", "invalid"])
def test_a_models_fault_scores_0_and_keeps_the_other_metrics(fault: str) -> None:
    drive = Drive(driven=390.0, steps=300, max_decel=3.0)
    reported = metrics(drive, Ending(outcome=fault, route=400.0, limit=13.9))
    assert reported["score"] == 0.0
    assert reported["outcome"] == fault
    assert reported["route_completion"] == pytest.approx(97.5)
    assert reported["max_decel"] == 3.0


def test_time_to_collision_counts_only_while_closing() -> None:
    drive = Drive()
    drive.follow(10.0, 20.0, 0.0)
    assert drive.min_ttc == inf
    drive.follow(10.0, 20.0, -0.05)
    assert drive.min_ttc == inf
    drive.follow(10.0, 5.0, -5.0)
    assert drive.min_ttc == pytest.approx(1.0)
    assert drive.ttc_exposed == 1
    assert drive.max_drac == pytest.approx(25.0 / 10.0)
    assert drive.min_headway == pytest.approx(0.5)


def test_infinite_times_are_replaced_by_their_caps() -> None:
    reported = metrics(Drive(steps=10, driven=20.0), ARRIVED)
    assert reported["min_ttc"] == 100.0
    assert reported["min_headway"] == 100.0
    assert reported["min_pet"] == 5.0


def test_the_rss_distance_follows_definition_1() -> None:
    # v = 10, the leader stands: 5 + 0.375 + 11.5^2 / 8
    assert rss_distance(10.0, 0.0) == pytest.approx(5.0 + 0.375 + 11.5**2 / 8)
    assert rss_distance(0.0, 20.0) == 0.0


def test_comfort_bounds_both_acceleration_and_jerk() -> None:
    drive = Drive()
    drive.move(10.0, 0.3, 13.9, 0.0)
    drive.move(10.0, 0.6, 13.9, 0.0)
    assert drive.comfortable == 2
    drive.move(10.0, 1.2, 13.9, 0.0)
    assert drive.comfortable == 2
    assert drive.jerk_squares == pytest.approx(3.0**2 + 3.0**2 + 6.0**2)


def test_a_stop_by_sumo_does_not_count_as_braking() -> None:
    drive = Drive()
    drive.move(10.0, 0.0, 13.9, 0.0)
    drive.halt()
    reported = metrics(drive, Ending(outcome="stranded", route=400.0, limit=13.9))
    assert reported["max_decel"] == 0.0
    assert reported["jerk_rms"] == 0.0


def test_speeding_is_the_mean_excess_over_all_steps_of_the_drive() -> None:
    drive = Drive(driven=30.0)
    for speed in (10.0, 15.9, 13.9, 13.9):
        drive.move(speed, 0.0, 13.9, 1000.0)
    reported = metrics(drive, ARRIVED)
    assert reported["speeding"] == pytest.approx(2.0 / 4)
    assert reported["max_speeding"] == pytest.approx(2.0)
    assert reported["co2"] == pytest.approx(4 * 1000.0 * DT / 30.0)
    assert reported["jerk_rms"] == pytest.approx(sqrt(0.0))


def test_the_published_metrics_are_the_reported_metrics() -> None:
    published = {metric["name"]: metric for metric in json.loads(DATASET.read_text())["metrics"]}
    reported = metrics(Drive(steps=1, driven=2.0), ARRIVED)
    assert set(published) == {*reported, "event_met"}
    for name, metric in published.items():
        if metric["better"] is not None:
            assert isinstance(metric["worst"], int | float), name
            value = reported.get(name, 0)
            assert isinstance(value, int | float), name
