"""Runs of the 288 car_street scenarios: events, bitwise reproducibility, and the order of scores. Needs libsumo."""

import hashlib
import json
import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from runtimes.environments import Environment, prepare
from runtimes.harness.simulators.base import Interface, Scenario
from tests.cached import ENVIRONMENTS
from tests.simulators.car_street import (
    DATASET,
    NAMES,
    ROOT,
    SPECS,
    begin,
    entry,
    hold,
    model,
    run,
    simulator,
    site,
    spec,
    step,
    sumo,
)

#: A scenario for each event on each street, with traffic of medium density.
SCENARIO_PER_EVENT = [
    line for line in SPECS if line["density"] == "medium" and line["mix"] == "mixed" and line["seed"] == 0
]


def test_every_scenario_starts_with_all_its_actors_and_within_the_published_ranges() -> None:
    interface = Interface.of(json.loads((DATASET / "dataset.json").read_text())["interface"])
    low, high = (np.array(side, dtype=np.float32) for side in (interface.observation.low, interface.observation.high))
    for line in SPECS:
        observation = begin(line, seed=line["index"])
        assert observation.dtype == np.float32
        assert observation.shape == (32,)
        assert np.isfinite(observation).all()
        assert ((low <= observation) & (observation <= high)).all(), line["name"]
        present = sumo().vehicle.getIDList()
        assert "ego" in present
        actor_is_a_car = line["event"] not in ("none", "late_pedestrian")
        assert ("actor" in present) == actor_is_a_car, line["name"]
        assert len(present) >= 0.6 * line["vehicles"], line["name"]
        assert sumo().person.getIDCount() == line["pedestrians"] + (line["event"] == "late_pedestrian")
        assert entry(observation, "route_left") > 250


def test_observations_stay_within_the_published_ranges_under_random_driving() -> None:
    interface = Interface.of(json.loads((DATASET / "dataset.json").read_text())["interface"])
    low, high = (np.array(side, dtype=np.float32) for side in (interface.observation.low, interface.observation.high))

    def check_ranges(observation: np.ndarray) -> None:
        assert np.isfinite(observation).all()
        outside = [
            name
            for name, value, lower, upper in zip(NAMES, observation, low, high, strict=True)
            if not lower <= value <= upper
        ]
        assert not outside

    for line in SCENARIO_PER_EVENT:
        driver = model("random_driver")
        driver.reset({"seed": line["index"]})
        run(line, driver.act, watch=check_ranges)


@pytest.mark.parametrize(
    "line", [line for line in SCENARIO_PER_EVENT if line["event"] != "none"], ids=lambda line: line["name"]
)
def test_a_careful_driver_meets_every_event_and_is_not_at_fault(line: dict[str, object]) -> None:
    metrics = run(line, model("idm").act)
    assert metrics["event_met"] == 1
    assert metrics["at_fault"] == 0
    assert metrics["red_lights"] == 0


@pytest.mark.parametrize("event", ["lead_brake", "cut_in", "stopped_vehicle", "red_runner", "hurried_major"])
@pytest.mark.parametrize("speed", [4.0, 8.0, 12.0])
def test_slow_and_fast_drivers_meet_an_event(event: str, speed: float) -> None:
    lines = [line for line in SPECS if line["event"] == event and line["density"] == "sparse"][:4]
    lines = [line | {"vehicles": 0, "pedestrians": 0} for line in lines]
    assert any(run(line, hold(speed))["event_met"] for line in lines)


def test_the_leader_brakes_hard_once_and_drives_on() -> None:
    line = next(line for line in SPECS if line["event"] == "lead_brake" and line["street"] == "ramp_merge")
    driver = model("idm")
    observation, done, speeds = begin(line | {"vehicles": 0}), False, []
    while not done and "actor" in sumo().vehicle.getIDList():
        speeds.append(sumo().vehicle.getSpeed("actor"))
        observation, done = step(*driver.act(observation))
    drops = [before - after for before, after in pairwise(speeds)]
    assert max(drops) == pytest.approx(0.8, abs=0.01)
    standing_steps = sum(speed < 0.01 for speed in speeds)
    assert 19 <= standing_steps <= 23
    assert speeds[-1] > 3.0


def test_a_stalled_car_drives_on_after_fifteen_seconds() -> None:
    stalled = next(line for line in SPECS if line["event"] == "stalled")
    driver = model("idm")
    observation, done, released_at = begin(stalled), False, None
    now = 0.0
    while not done:
        observation, done = step(*driver.act(observation))
        now += 0.1
        if released_at is None and "actor" in sumo().vehicle.getIDList() and sumo().vehicle.getSpeed("actor") > 0.5:
            released_at = now
    assert released_at is not None
    assert 15.0 <= released_at <= 26.0


def digest(line: dict[str, object], seed: int) -> str:
    """Run a scenario with random driving and return a digest of all observations and metrics."""
    driver = model("random_driver")
    driver.reset({"seed": seed})
    sha256 = hashlib.sha256()
    metrics = run(line, driver.act, seed=seed, watch=lambda observation: sha256.update(observation.tobytes()))
    sha256.update(json.dumps(metrics, sort_keys=True).encode())
    return sha256.hexdigest()


DIGEST_SCENARIOS = [
    line for line in SCENARIO_PER_EVENT if line["event"] in ("none", "cut_in", "red_runner", "late_pedestrian")
]


def test_equal_seeds_give_bitwise_equal_results_in_any_order_and_in_another_process() -> None:
    in_order = [digest(line, seed) for seed, line in enumerate(DIGEST_SCENARIOS)]
    order = list(enumerate(DIGEST_SCENARIOS))
    random.Random(3).shuffle(order)
    shuffled = {seed: digest(line, seed) for seed, line in order}
    assert [shuffled[seed] for seed in range(len(DIGEST_SCENARIOS))] == in_order
    other_process = subprocess.run(
        [sys.executable, "-c", "from tests.simulators.test_car_street_scenarios import print_digests; print_digests()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(other_process.stdout.splitlines()[-1]) == in_order


def print_digests() -> None:
    """Print the digests; run in another process."""
    print(json.dumps([digest(line, seed) for seed, line in enumerate(DIGEST_SCENARIOS)]))


def test_different_seeds_give_different_traffic_on_the_same_route() -> None:
    line = spec("arterial-medium-none-mixed-0")
    assert digest(line, 1) != digest(line, 2)
    route_lengths = [entry(begin(line, seed), "route_left") for seed in (1, 2)]
    assert route_lengths[0] == pytest.approx(route_lengths[1], abs=2.0)


def test_a_drive_can_be_replayed_from_its_actions_alone() -> None:
    line = spec("signal_grid-dense-red_runner-rough-0")
    driver = model("idm_mobil")
    actions, frames = [], []
    observation, done = begin(line, 5), False
    while not done:
        action = np.array(driver.act(observation), dtype=np.float32)
        actions.append(action)
        observation, done = simulator().step(action)
    metrics = simulator().outcome(None)
    simulator().reset(Scenario(index=line["index"], seed=5, spec=line))
    scene = simulator().scene()
    for action in actions:
        simulator().step(action)
        frames.append(simulator().frame())
    assert simulator().outcome(None) == metrics
    assert json.loads(json.dumps({"scene": scene, "frames": frames}))["frames"][-1]["time"] == metrics["seconds"]
    egos = [next(car for car in frame["vehicles"] if car["id"] == "ego") for frame in frames[:-1]]
    distance = sum(np.hypot(after["x"] - before["x"], after["y"] - before["y"]) for before, after in pairwise(egos))
    assert distance == pytest.approx(metrics["mean_speed"] * metrics["seconds"], rel=0.1)
    assert len(scene["lanes"]) == 48
    assert set(frames[0]["lights"].values()) <= {"r", "y", "g", "u"}


def test_the_frames_of_a_replay_count_the_red_lights_at_the_moment_when_each_is_run() -> None:
    driver = hold(13.9)
    observation, done = begin(spec("signal_grid-sparse-none-mixed-0"), 3), False
    counts, lights = [simulator().frame()["red_lights"]], []
    while not done:
        lights.append((entry(observation, "stop_line"), entry(observation, "light_red")))
        observation, done = step(*driver(observation))
        counts.append(simulator().frame()["red_lights"])
    assert counts[0] == 0 and counts[-1] == simulator().outcome(None)["red_lights"] > 0
    for (before, after), (stop_line, is_red) in zip(pairwise(counts), lights, strict=True):
        assert after in (before, before + 1)
        assert after == before or (is_red == 1.0 and stop_line < 3.0)


def test_a_models_fault_scores_0_and_keeps_the_metrics_so_far() -> None:
    begin(spec("crosswalk-sparse-none-mixed-0"))
    for _ in range(50):
        step(1.0)
    metrics = simulator().outcome("timed_out")
    assert (metrics["outcome"], metrics["score"]) == ("timed_out", 0.0)
    assert metrics["route_completion"] > 5
    assert metrics["seconds"] == pytest.approx(5.0)


def test_arriving_ends_the_scenario_with_full_route_completion() -> None:
    metrics = run(spec("priority_junction-sparse-none-mixed-0") | {"vehicles": 0}, model("idm").act)
    assert (metrics["outcome"], metrics["route_completion"], metrics["score"]) == ("arrived", 100.0, 100.0)


def test_standing_still_times_out_at_the_limit() -> None:
    metrics = run(
        spec("roundabout-sparse-none-mixed-0") | {"time_limit": 7.0, "vehicles": 0}, lambda observation: (-9.0, 0.0)
    )
    assert (metrics["outcome"], metrics["seconds"]) == ("timeout", pytest.approx(7.0))


def test_scores_rank_careful_drivers_over_reckless_ones_and_progress_over_standing() -> None:
    lines = [line for line in SPECS if line["mix"] == "mixed" and line["density"] == "medium"]

    def score(name: str) -> float:
        driver, scores = model(name), []
        for line in lines:
            if hasattr(driver, "reset"):
                driver.reset({"seed": line["index"]})
            scores.append(run(line, driver.act, seed=line["index"])["score"])
        return mean(scores)

    scores = {name: score(name) for name in ("idm_mobil", "idm", "full_throttle", "constant_speed", "random_driver")}
    assert scores["idm_mobil"] > scores["idm"] > scores["full_throttle"] + 25, scores
    assert scores["full_throttle"] > scores["random_driver"] + 5, scores
    assert scores["idm"] > scores["constant_speed"] + 25 > scores["random_driver"] + 25, scores


def test_random_driving_over_many_scenarios_never_crashes_sumo() -> None:
    for line in SPECS[::5]:
        driver = model("random_driver")
        driver.reset({"seed": line["index"]})
        metrics = run(line, driver.act, seed=line["index"])
        assert metrics["outcome"] in {"arrived", "collision", "timeout", "stranded"}


def test_the_dataset_can_be_generated_again_to_the_byte(tmp_path: Path) -> None:
    lock = (ROOT / "scripts/car_street/generate.lock").read_text()
    tools = prepare(Environment("car_street", lock), ENVIRONMENTS, lambda message, part: None)
    subprocess.run(
        [sys.executable, "-m", "scripts.car_street.generate", "--into", str(tmp_path)],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tools)},
        check=True,
        capture_output=True,
    )
    for file in json.loads((DATASET / "dataset.json").read_text())["files"]:
        content = (tmp_path / file["path"]).read_bytes()
        assert "sha256:" + hashlib.sha256(content).hexdigest() == file["digest"], file["path"]


def test_the_standalone_run_prints_episodes_seconds_and_score() -> None:
    process = subprocess.run(
        [
            sys.executable,
            "-m",
            "scripts.car_street.standalone",
            str(DATASET),
            str(ROOT / "runtimes/harness/simulators/sumo/baselines/idm.py"),
            "--scenarios",
            "3",
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(site())},
        check=True,
        capture_output=True,
        text=True,
    )
    summary = json.loads(process.stdout.splitlines()[-1])
    assert summary["episodes"] == 3
    assert summary["seconds"] > 0
    assert 0 <= summary["score"] <= 100
