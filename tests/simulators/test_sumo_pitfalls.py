"""SUMO simulator: pitfalls of driving a car in SUMO that would lead to wrong scores. Needs libsumo."""

import numpy as np
import pytest

from runtimes.harness.simulators.base import SimulatorBroken
from tests.simulators.car_street import (
    DATASET,
    begin,
    empty,
    entry,
    hold,
    model,
    more_vehicles,
    run,
    simulator,
    spec,
    step,
    sumo,
)

RAMP = empty("ramp_merge", ["ab", "bc", "cd"], start={"lane": 0, "pos": 60.0, "speed": 10.0})


def test_the_ego_follows_the_acceleration_exactly() -> None:
    speed = entry(begin(RAMP), "speed")
    for accel in (3.0, -9.0, 2.5, -4.0, 0.0, 3.0, 1.7):
        observation, _ = step(accel)
        assert entry(observation, "speed") == pytest.approx(speed + 0.1 * accel, abs=1e-5)
        speed = entry(observation, "speed")
        assert entry(observation, "accel") == pytest.approx(accel, abs=1e-4)


def test_integration_is_ballistic_not_euler() -> None:
    before = entry(begin(RAMP), "route_left")
    speed = entry(step(0.0)[0], "speed")
    observation, _ = step(3.0)
    assert before - entry(observation, "route_left") == pytest.approx(0.1 * speed + 0.1 * speed + 3.0 * 0.005, abs=2e-4)


def test_accelerations_out_of_range_are_clipped_and_counted() -> None:
    speed = entry(begin(RAMP), "speed")
    observation, _ = step(50.0)
    assert entry(observation, "speed") == pytest.approx(speed + 0.3, abs=1e-5)
    observation, _ = step(-50.0)
    assert entry(observation, "speed") == pytest.approx(speed + 0.3 - 0.9, abs=1e-5)
    step(0.0, 7.0)
    step(0.0, 1.0)
    assert simulator().outcome(None)["clipped_actions"] == 3


def test_the_ego_does_not_drive_backwards() -> None:
    begin(RAMP)
    for _ in range(30):
        observation, _ = step(-9.0)
    assert entry(observation, "speed") == 0.0


def test_sumo_does_not_brake_for_a_model_that_drives_into_a_car() -> None:
    with more_vehicles({"name": "parked", "route": RAMP["route"], "lane": 0, "pos": 140}):
        begin(RAMP)
        sumo().vehicle.setSpeed("parked", 0.0)
        done = False
        while not done:
            _, done = step(0.0)
        metrics = simulator().outcome(None)
    assert metrics["outcome"] == "collision"
    assert metrics["impact_speed"] == pytest.approx(10.0, abs=1e-4)
    assert metrics["max_decel"] == pytest.approx(0.0, abs=1e-6)


def test_a_lane_off_the_route_strands_the_ego_and_its_stop_does_not_count_as_braking_of_the_model() -> None:
    # The right lane of the main road leads straight on or right; the route turns left.
    wrong_lane = empty("priority_junction", ["wj", "jn"], start={"lane": 0, "pos": 100.0, "speed": 12.0})
    metrics = run(wrong_lane, hold(12.0))
    assert metrics["outcome"] == "stranded"
    assert metrics["max_decel"] < 1.0
    assert metrics["jerk_rms"] < 15.0
    assert 0 < metrics["route_completion"] < 60
    assert metrics["score"] == pytest.approx(metrics["route_completion"] / 1.4)


def test_standing_a_metre_behind_a_car_is_not_a_collision() -> None:
    with more_vehicles({"name": "parked", "route": RAMP["route"], "lane": 0, "pos": 140, "type": "normal"}):
        begin(RAMP)
        sumo().vehicle.setSpeed("parked", 0.0)
        while True:
            distance = 140 - 5.0 - 1.0 - sumo().vehicle.getLanePosition("ego")
            speed = sumo().vehicle.getSpeed("ego")
            observation, done = step(-speed * speed / (2 * max(0.05, distance)) if distance < 40 else 0.0)
            assert not done
            if entry(observation, "speed") < 0.05:
                break
        assert 0.5 < entry(observation, "lead_gap") < 2.4
        for _ in range(20):
            _, done = step(-1.0)
            assert not done


def test_gaps_are_bumper_to_bumper_before_and_behind() -> None:
    ahead = {"name": "ahead", "route": RAMP["route"], "lane": 0, "pos": 160, "type": "normal", "speed": 10}
    behind = {"name": "behind", "route": RAMP["route"], "lane": 0, "pos": 60, "type": "normal", "speed": 5}
    beside = {"name": "beside", "route": RAMP["route"], "lane": 1, "pos": 70, "type": "aggressive", "speed": 5}
    start = {"lane": 0, "pos": 110.0, "speed": 8.0}
    with more_vehicles(ahead, behind, beside):
        observation = begin(RAMP | {"start": start})
        positions = {name: sumo().vehicle.getLanePosition(name) for name in ("ego", "ahead", "behind", "beside")}
        length = sumo().vehicle.getLength("ahead")
    assert entry(observation, "lead_gap") == pytest.approx(positions["ahead"] - length - positions["ego"], abs=1e-3)
    assert entry(observation, "rear_gap") == pytest.approx(positions["ego"] - 4.5 - positions["behind"], abs=1e-3)
    assert entry(observation, "left_rear_gap") == pytest.approx(positions["ego"] - 4.5 - positions["beside"], abs=1e-3)
    assert entry(observation, "left_lead_gap") == 100.0
    assert entry(observation, "lead_rel_speed") == pytest.approx(
        sumo().vehicle.getSpeed("ahead") - entry(observation, "speed"), abs=1e-4
    )


def test_the_first_collision_ends_the_scenario_and_is_reported() -> None:
    with more_vehicles({"name": "parked", "route": RAMP["route"], "lane": 0, "pos": 120}):
        begin(RAMP)
        sumo().vehicle.setSpeed("parked", 0.0)
        done = False
        while not done:
            _, done = step(0.0)
        metrics = simulator().outcome(None)
        # SUMO reports the same collision at every step.
        sumo().simulationStep()
        assert [collision.victim for collision in sumo().simulation.getCollisions()] == ["parked"]
    assert metrics["collision"] == metrics["at_fault"] == 1
    assert metrics["collision_kind"] == "collision"


def test_a_standing_ego_that_is_hit_is_not_at_fault() -> None:
    with more_vehicles({"name": "blind", "route": RAMP["route"], "lane": 0, "pos": 20, "speed": 10}):
        begin(RAMP | {"start": {"lane": 0, "pos": 100.0, "speed": 0.0}})
        sumo().vehicle.setSpeedMode("blind", 32)
        sumo().vehicle.setLaneChangeMode("blind", 0)
        sumo().vehicle.setSpeed("blind", 10.0)
        done = False
        while not done:
            _, done = step(-1.0)
    metrics = simulator().outcome(None)
    assert (metrics["outcome"], metrics["at_fault"]) == ("collision", 0)
    assert metrics["impact_speed"] == pytest.approx(10.0, abs=0.1)


def test_a_lane_change_takes_three_seconds_and_happens_once() -> None:
    begin(RAMP)
    indices = [entry(step(0.0, 1.0)[0], "lane_index") for _ in range(60)]
    assert indices[0] == 0.0
    first = indices.index(1.0)
    assert 5 <= first <= 25
    # The lane action is constant, and the road has only two lanes.
    assert set(indices[first:]) == {1.0}
    assert simulator().outcome(None)["lane_changes"] == 1


def test_a_blind_lane_change_collides_and_the_guard_refuses_it() -> None:
    beside = {"name": "beside", "route": RAMP["route"], "lane": 1, "pos": 61, "speed": 10}

    def metrics_of_lane_change(**params: bool) -> dict[str, object]:
        with more_vehicles(beside):
            begin(RAMP | {"time_limit": 5.0}, **params)
            sumo().vehicle.setSpeedMode("beside", 32)
            sumo().vehicle.setSpeed("beside", 10.0)
            done = False
            while not done:
                _, done = step(0.0, 1.0)
        metrics: dict[str, object] = simulator().outcome(None)
        return metrics

    unguarded, guarded = metrics_of_lane_change(), metrics_of_lane_change(lane_guard=True)
    assert (unguarded["outcome"], unguarded["collision_kind"], unguarded["at_fault"]) == ("collision", "side", 1)
    assert (guarded["outcome"], guarded["lane_changes"]) == ("timeout", 0)


def red_approach(lane: int) -> np.ndarray:
    """Start before a red light of the main road; return the first observation."""
    observation = begin(empty("arterial", ["left0A0", "A0B0"], start={"lane": lane, "pos": 60.0, "speed": 8.0}))
    sumo().trafficlight.setRedYellowGreenState("A0", "r" * len(sumo().trafficlight.getRedYellowGreenState("A0")))
    return observation


def test_a_red_light_counts_once_when_the_stop_line_is_crossed() -> None:
    red_approach(0)
    observation, _ = step(0.0)
    assert entry(observation, "light_red") == 1.0
    while entry(observation, "stop_line") < 100.0 or entry(observation, "light_red"):
        assert simulator().drive.red_lights == 0
        observation, _ = step(0.0)
    assert simulator().drive.red_lights == 1
    for _ in range(40):
        step(0.0)
    assert simulator().drive.red_lights == 1


def test_changing_lanes_before_a_red_light_does_not_count_as_running_it() -> None:
    red_approach(0)
    for count in range(70):
        speed = sumo().vehicle.getSpeed("ego")
        step(-1.0 if speed > 2 else 0.0, 1.0 if count < 35 else -1.0)
    assert simulator().drive.lane_changes == 2
    assert simulator().drive.red_lights == 0


def test_passing_a_junction_without_lights_does_not_count_as_running_the_next_red_light() -> None:
    observation = begin(empty("signal_grid", ["A1A0", "A0B0", "B0C0"], start={"lane": 0, "pos": 100.0, "speed": 8.0}))
    light = "B0"
    sumo().trafficlight.setRedYellowGreenState(light, "r" * len(sumo().trafficlight.getRedYellowGreenState(light)))
    for _ in range(120):
        observation, _ = step(0.0)
    assert entry(observation, "light_red") == 1.0
    assert simulator().drive.red_lights == 0


@pytest.mark.parametrize(("approach", "exit"), [("wj", "je"), ("ej", "jw")])
def test_the_side_street_observes_conflicts_from_both_directions(approach: str, exit: str) -> None:
    crossing = empty("priority_junction", ["sj", "jn"], start={"lane": 0, "pos": 100.0, "speed": 8.0})
    with more_vehicles({"name": "main", "route": [approach, exit], "lane": 0, "pos": 140, "speed": 8}):
        observation = begin(crossing)
        conflicts = [entry(observation, "conflict")] + [entry(step(-0.5)[0], "conflict") for _ in range(20)]
        observation, _ = step(-0.5)
        assert all(conflicts[1:])
        assert 0 < entry(observation, "conflict_foe_dist") < 60
        assert entry(observation, "conflict_foe_speed") > 5
        # SUMO's getJunctionFoes omits one of the two directions.
        reported = {approach: bool(sumo().vehicle.getJunctionFoes("ego", 60.0))}
    assert reported == {approach: approach == "ej"}


def test_the_main_road_observes_no_conflict() -> None:
    with more_vehicles({"name": "minor", "route": ["sj", "je"], "lane": 0, "pos": 120, "speed": 8}):
        observation = begin(empty("priority_junction", ["wj", "je"], start={"lane": 0, "pos": 100.0, "speed": 8.0}))
        for _ in range(20):
            assert entry(observation, "conflict") == 0.0
            observation, _ = step(0.0)


def test_a_collision_on_a_junction_is_the_fault_of_the_vehicle_that_had_to_yield() -> None:
    def metrics_of_collision(ego: list[str], other: list[str], pos: float) -> dict[str, object]:
        start = {"lane": 0, "pos": 60.0, "speed": 8.0}
        with more_vehicles({"name": "other", "route": other, "lane": 0, "pos": pos, "speed": 8}):
            begin(empty("priority_junction", ego, start=start))
            sumo().vehicle.setSpeedMode("other", 32)
            sumo().vehicle.setSpeed("other", 8.0)
            done = False
            while not done:
                _, done = step(0.0)
        metrics: dict[str, object] = simulator().outcome(None)
        return metrics

    yielding = metrics_of_collision(["sj", "jn"], ["wj", "je"], 94.0)
    assert (yielding["outcome"], yielding["collision_kind"], yielding["at_fault"]) == ("collision", "junction", 1)
    preferred = metrics_of_collision(["wj", "je"], ["sj", "jn"], 26.0)
    assert (preferred["outcome"], preferred["collision_kind"], preferred["at_fault"]) == ("collision", "junction", 0)


def test_a_pedestrian_on_the_crossing_is_observed_and_can_be_hit() -> None:
    scenario = spec("crosswalk-sparse-late_pedestrian-mixed-0") | {"vehicles": 0, "pedestrians": 0}
    observed_conflicts = []

    def record_conflict(observation: np.ndarray) -> None:
        if entry(observation, "conflict"):
            observed_conflicts.append(
                (entry(observation, "conflict_ego_dist"), entry(observation, "conflict_foe_speed"))
            )

    metrics = run(scenario, hold(8.0), watch=record_conflict)
    assert (metrics["outcome"], metrics["collision_kind"], metrics["at_fault"]) == ("collision", "crossing", 1)
    assert metrics["score"] == pytest.approx(metrics["route_completion"] / 2.0)
    assert observed_conflicts[0][0] > 5.0
    assert 1.0 < max(speed for _, speed in observed_conflicts) < 2.5
    careful = run(scenario, model("idm").act)
    assert (careful["outcome"], careful["event_met"]) == ("arrived", 1)


def test_other_drivers_yield_to_pedestrians() -> None:
    scenario = spec("crosswalk-sparse-late_pedestrian-mixed-0") | {"vehicles": 0, "pedestrians": 0}
    route = scenario["route"]
    with more_vehicles({"name": "driver", "type": "normal", "route": route, "lane": 1, "pos": 20, "speed": 8}):
        begin(scenario | {"start": {"lane": 0, "pos": 10.0, "speed": 0.0}})
        sumo().person.setSpeed("late", 1.0)
        slowest = 99.0
        for _ in range(250):
            step(-1.0)
            slowest = min(slowest, sumo().vehicle.getSpeed("driver"))
        assert not sumo().simulation.getCollisions()
    assert slowest < 6.0


def test_a_simulator_that_has_failed_must_not_be_used_again() -> None:
    begin(RAMP)
    sumo().close()
    with pytest.raises(SimulatorBroken):
        step(0.0)
    assert entry(begin(RAMP), "speed") > 0


def test_the_ego_acts_at_every_step_and_other_vehicles_every_half_second() -> None:
    with more_vehicles({"name": "other", "type": "normal", "route": RAMP["route"], "lane": 1, "pos": 200, "speed": 10}):
        begin(RAMP)
        # With 0.5 s, SUMO 1.28 crashes when the ego changes lanes.
        assert sumo().vehicle.getActionStepLength("ego") == pytest.approx(0.1)
        assert sumo().vehicle.getActionStepLength("other") == pytest.approx(0.5)


def test_the_options_allow_no_other_randomness_and_no_teleporting() -> None:
    simulator()
    from runtimes.harness.simulators.sumo.engine import options

    arguments = options(DATASET / "nets/arterial.net.xml", DATASET / "types.add.xml", 2**40 + 5)
    values = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert values["--seed"] == str((2**40 + 5) % 2**31)
    assert values["--time-to-teleport"] == "-1"
    assert values["--collision.mingap-factor"] == "0"
    assert not {"--random", "--device.rerouting.threads", "--load-state", "--lateral-resolution"} & set(arguments)
