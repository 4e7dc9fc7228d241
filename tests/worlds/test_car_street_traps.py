"""The traps of driving a car in SUMO, each of which has cost somebody a wrong score. Needs libsumo."""

import numpy as np
import pytest

from runtimes.harness.simulators.base import SimulatorBroken
from tests.worlds.street_world import DATASET, begin, empty, entry, hold, model, play, put, spec, step, sumo, world

RAMP = empty("ramp_merge", ["ab", "bc", "cd"], start={"lane": 0, "pos": 60.0, "speed": 10.0})


def test_the_car_does_exactly_what_it_is_told() -> None:
    speed = entry(begin(RAMP), "speed")
    for accel in (3.0, -9.0, 2.5, -4.0, 0.0, 3.0, 1.7):
        seen, _ = step(accel)
        assert entry(seen, "speed") == pytest.approx(speed + 0.1 * accel, abs=1e-5)
        speed = entry(seen, "speed")
        assert entry(seen, "accel") == pytest.approx(accel, abs=1e-4)


def test_motion_is_ballistic_and_not_eulers() -> None:
    before = entry(begin(RAMP), "route_left")
    speed = entry(step(0.0)[0], "speed")
    seen, _ = step(3.0)
    assert before - entry(seen, "route_left") == pytest.approx(0.1 * speed + 0.1 * speed + 3.0 * 0.005, abs=2e-4)


def test_accelerations_out_of_range_are_clipped_and_counted() -> None:
    speed = entry(begin(RAMP), "speed")
    seen, _ = step(50.0)
    assert entry(seen, "speed") == pytest.approx(speed + 0.3, abs=1e-5)
    seen, _ = step(-50.0)
    assert entry(seen, "speed") == pytest.approx(speed + 0.3 - 0.9, abs=1e-5)
    step(0.0, 7.0)
    step(0.0, 1.0)
    assert world().outcome(None)["clipped_actions"] == 3


def test_the_car_does_not_drive_backwards() -> None:
    begin(RAMP)
    for _ in range(30):
        seen, _ = step(-9.0)
    assert entry(seen, "speed") == 0.0


def test_sumo_does_not_brake_for_a_model_that_drives_into_somebody() -> None:
    with put({"name": "parked", "route": RAMP["route"], "lane": 0, "pos": 140}):
        begin(RAMP)
        sumo().vehicle.setSpeed("parked", 0.0)
        over = False
        while not over:
            _, over = step(0.0)
        told = world().outcome(None)
    assert told["outcome"] == "collision"
    assert told["impact_speed"] == pytest.approx(10.0, abs=1e-4)
    assert told["max_decel"] == pytest.approx(0.0, abs=1e-6)


def test_a_lane_that_leaves_the_route_strands_the_car_and_its_halt_is_not_the_models_braking() -> None:
    # The right lane of the side road's main road leads straight on or right, the route goes left.
    wrong = empty("priority_junction", ["wj", "jn"], start={"lane": 0, "pos": 100.0, "speed": 12.0})
    told = play(wrong, hold(12.0))
    assert told["outcome"] == "stranded"
    assert told["max_decel"] < 1.0
    assert told["jerk_rms"] < 15.0
    assert 0 < told["route_completion"] < 60
    assert told["score"] == pytest.approx(told["route_completion"] / 1.4)


def test_standing_a_metre_behind_somebody_is_no_collision() -> None:
    with put({"name": "parked", "route": RAMP["route"], "lane": 0, "pos": 140, "type": "normal"}):
        begin(RAMP)
        sumo().vehicle.setSpeed("parked", 0.0)
        while True:
            left = 140 - 5.0 - 1.0 - sumo().vehicle.getLanePosition("ego")
            speed = sumo().vehicle.getSpeed("ego")
            seen, over = step(-speed * speed / (2 * max(0.05, left)) if left < 40 else 0.0)
            assert not over
            if entry(seen, "speed") < 0.05:
                break
        assert 0.5 < entry(seen, "lead_gap") < 2.4
        for _ in range(20):
            _, over = step(-1.0)
            assert not over


def test_gaps_are_bumper_to_bumper_before_and_behind() -> None:
    ahead = {"name": "ahead", "route": RAMP["route"], "lane": 0, "pos": 160, "type": "normal", "speed": 10}
    behind = {"name": "behind", "route": RAMP["route"], "lane": 0, "pos": 60, "type": "normal", "speed": 5}
    beside = {"name": "beside", "route": RAMP["route"], "lane": 1, "pos": 70, "type": "aggressive", "speed": 5}
    start = {"lane": 0, "pos": 110.0, "speed": 8.0}
    with put(ahead, behind, beside):
        seen = begin(RAMP | {"start": start})
        at = {name: sumo().vehicle.getLanePosition(name) for name in ("ego", "ahead", "behind", "beside")}
        length = sumo().vehicle.getLength("ahead")
    assert entry(seen, "lead_gap") == pytest.approx(at["ahead"] - length - at["ego"], abs=1e-3)
    assert entry(seen, "rear_gap") == pytest.approx(at["ego"] - 4.5 - at["behind"], abs=1e-3)
    assert entry(seen, "left_rear_gap") == pytest.approx(at["ego"] - 4.5 - at["beside"], abs=1e-3)
    assert entry(seen, "left_lead_gap") == 100.0
    assert entry(seen, "lead_rel_speed") == pytest.approx(
        sumo().vehicle.getSpeed("ahead") - entry(seen, "speed"), abs=1e-4
    )


def test_the_first_collision_ends_the_scenario_and_is_the_one_reported() -> None:
    with put({"name": "parked", "route": RAMP["route"], "lane": 0, "pos": 120}):
        begin(RAMP)
        sumo().vehicle.setSpeed("parked", 0.0)
        over = False
        while not over:
            _, over = step(0.0)
        first = world().outcome(None)
        # SUMO goes on reporting the same two cars at every step.
        sumo().simulationStep()
        assert [c.victim for c in sumo().simulation.getCollisions()] == ["parked"]
    assert first["collision"] == first["at_fault"] == 1
    assert first["collision_kind"] == "collision"


def test_who_is_struck_while_standing_is_not_to_blame() -> None:
    with put({"name": "blind", "route": RAMP["route"], "lane": 0, "pos": 20, "speed": 10}):
        begin(RAMP | {"start": {"lane": 0, "pos": 100.0, "speed": 0.0}})
        sumo().vehicle.setSpeedMode("blind", 32)
        sumo().vehicle.setLaneChangeMode("blind", 0)
        sumo().vehicle.setSpeed("blind", 10.0)
        over = False
        while not over:
            _, over = step(-1.0)
    told = world().outcome(None)
    assert (told["outcome"], told["at_fault"]) == ("collision", 0)
    assert told["impact_speed"] == pytest.approx(10.0, abs=0.1)


def test_a_lane_change_takes_three_seconds_and_happens_once() -> None:
    begin(RAMP)
    indices = [entry(step(0.0, 1.0)[0], "lane_index") for _ in range(60)]
    assert indices[0] == 0.0
    first = indices.index(1.0)
    assert 5 <= first <= 25
    # The wish is held all the time, and there is no third lane here.
    assert set(indices[first:]) == {1.0}
    assert world().outcome(None)["lane_changes"] == 1


def test_a_blind_lane_change_collides_and_the_guard_refuses_it() -> None:
    beside = {"name": "beside", "route": RAMP["route"], "lane": 1, "pos": 61, "speed": 10}

    def change(**params: bool) -> dict[str, object]:
        with put(beside):
            begin(RAMP | {"time_limit": 5.0}, **params)
            sumo().vehicle.setSpeedMode("beside", 32)
            sumo().vehicle.setSpeed("beside", 10.0)
            over = False
            while not over:
                _, over = step(0.0, 1.0)
        told: dict[str, object] = world().outcome(None)
        return told

    blind, guarded = change(), change(lane_guard=True)
    assert (blind["outcome"], blind["collision_kind"], blind["at_fault"]) == ("collision", "side", 1)
    assert (guarded["outcome"], guarded["lane_changes"]) == ("timeout", 0)


def red_approach(lane: int) -> np.ndarray:
    """Begin before a light of the main road that is red for long."""
    seen = begin(empty("arterial", ["left0A0", "A0B0"], start={"lane": lane, "pos": 60.0, "speed": 8.0}))
    sumo().trafficlight.setRedYellowGreenState("A0", "r" * len(sumo().trafficlight.getRedYellowGreenState("A0")))
    return seen


def test_driving_over_a_red_light_counts_once_and_only_when_the_line_is_crossed() -> None:
    red_approach(0)
    seen, _ = step(0.0)
    assert entry(seen, "light_red") == 1.0
    while entry(seen, "stop_line") < 100.0 or entry(seen, "light_red"):
        assert world().drive.red_lights == 0
        seen, _ = step(0.0)
    assert world().drive.red_lights == 1
    for _ in range(40):
        step(0.0)
    assert world().drive.red_lights == 1


def test_changing_lanes_before_a_red_light_is_not_running_it() -> None:
    red_approach(0)
    for count in range(70):
        speed = sumo().vehicle.getSpeed("ego")
        step(-1.0 if speed > 2 else 0.0, 1.0 if count < 35 else -1.0)
    assert world().drive.lane_changes == 2
    assert world().drive.red_lights == 0


def test_passing_a_junction_without_lights_is_not_running_the_next_red_one() -> None:
    seen = begin(empty("signal_grid", ["A1A0", "A0B0", "B0C0"], start={"lane": 0, "pos": 100.0, "speed": 8.0}))
    light = "B0"
    sumo().trafficlight.setRedYellowGreenState(light, "r" * len(sumo().trafficlight.getRedYellowGreenState(light)))
    for _ in range(120):
        seen, _ = step(0.0)
    assert entry(seen, "light_red") == 1.0
    assert world().drive.red_lights == 0


@pytest.mark.parametrize(("side", "onto"), [("wj", "je"), ("ej", "jw")])
def test_the_side_street_sees_those_it_must_let_pass_from_both_directions(side: str, onto: str) -> None:
    crossing = empty("priority_junction", ["sj", "jn"], start={"lane": 0, "pos": 100.0, "speed": 8.0})
    with put({"name": "main", "route": [side, onto], "lane": 0, "pos": 140, "speed": 8}):
        seen = begin(crossing)
        present = [entry(seen, "conflict")] + [entry(step(-0.5)[0], "conflict") for _ in range(20)]
        seen, _ = step(-0.5)
        assert all(present[1:])
        assert 0 < entry(seen, "conflict_foe_dist") < 60
        assert entry(seen, "conflict_foe_speed") > 5
        # SUMO's own list leaves one of the two directions out.
        told = {side: bool(sumo().vehicle.getJunctionFoes("ego", 60.0))}
    assert told == {side: side == "ej"}


def test_the_main_road_need_let_nobody_pass() -> None:
    with put({"name": "minor", "route": ["sj", "je"], "lane": 0, "pos": 120, "speed": 8}):
        seen = begin(empty("priority_junction", ["wj", "je"], start={"lane": 0, "pos": 100.0, "speed": 8.0}))
        for _ in range(20):
            assert entry(seen, "conflict") == 0.0
            seen, _ = step(0.0)


def test_a_collision_on_the_junction_is_the_fault_of_who_had_to_yield() -> None:
    def meet(ego: list[str], other: list[str], pos: float) -> dict[str, object]:
        start = {"lane": 0, "pos": 60.0, "speed": 8.0}
        with put({"name": "other", "route": other, "lane": 0, "pos": pos, "speed": 8}):
            begin(empty("priority_junction", ego, start=start))
            sumo().vehicle.setSpeedMode("other", 32)
            sumo().vehicle.setSpeed("other", 8.0)
            over = False
            while not over:
                _, over = step(0.0)
        told: dict[str, object] = world().outcome(None)
        return told

    yielding = meet(["sj", "jn"], ["wj", "je"], 94.0)
    assert (yielding["outcome"], yielding["collision_kind"], yielding["at_fault"]) == ("collision", "junction", 1)
    preferred = meet(["wj", "je"], ["sj", "jn"], 26.0)
    assert (preferred["outcome"], preferred["collision_kind"], preferred["at_fault"]) == ("collision", "junction", 0)


def test_a_person_on_the_crossing_is_seen_and_can_be_hit() -> None:
    late = spec("crosswalk-sparse-late_pedestrian-mixed-0") | {"vehicles": 0, "pedestrians": 0}
    seen_at = []

    def watch(seen: np.ndarray) -> None:
        if entry(seen, "conflict"):
            seen_at.append((entry(seen, "conflict_ego_dist"), entry(seen, "conflict_foe_speed")))

    told = play(late, hold(8.0), watch=watch)
    assert (told["outcome"], told["collision_kind"], told["at_fault"]) == ("collision", "crossing", 1)
    assert told["score"] == pytest.approx(told["route_completion"] / 2.0)
    assert seen_at[0][0] > 5.0
    assert 1.0 < max(speed for _, speed in seen_at) < 2.5
    careful = play(late, model("idm").act)
    assert (careful["outcome"], careful["event_met"]) == ("arrived", 1)


def test_other_drivers_let_pedestrians_pass() -> None:
    late = spec("crosswalk-sparse-late_pedestrian-mixed-0") | {"vehicles": 0, "pedestrians": 0}
    route = late["route"]
    with put({"name": "driver", "type": "normal", "route": route, "lane": 1, "pos": 20, "speed": 8}):
        begin(late | {"start": {"lane": 0, "pos": 10.0, "speed": 0.0}})
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


def test_the_ego_acts_at_every_step_though_the_others_do_not() -> None:
    with put({"name": "other", "type": "normal", "route": RAMP["route"], "lane": 1, "pos": 200, "speed": 10}):
        begin(RAMP)
        # At 0.5 s, SUMO 1.28 dies when the ego is told to change lanes.
        assert sumo().vehicle.getActionStepLength("ego") == pytest.approx(0.1)
        assert sumo().vehicle.getActionStepLength("other") == pytest.approx(0.5)


def test_the_options_leave_nothing_to_chance_and_teleport_nobody() -> None:
    world()
    from runtimes.harness.simulators.sumo.engine import options

    told = options(DATASET / "nets/arterial.net.xml", DATASET / "types.add.xml", 2**40 + 5)
    given = dict(zip(told[::2], told[1::2], strict=True))
    assert given["--seed"] == str((2**40 + 5) % 2**31)
    assert given["--time-to-teleport"] == "-1"
    assert given["--collision.mingap-factor"] == "0"
    assert not {"--random", "--device.rerouting.threads", "--load-state", "--lateral-resolution"} & set(told)
