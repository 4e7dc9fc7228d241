"""Replays: a sandboxed evaluator runs a scenario again from recorded actions."""

import json
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest

from api.rendering.pictures import svg
from datasets.catalogue import datasets
from runtimes import catalogue, environments
from runtimes.harness import sandbox
from runtimes.harness.runner.processes import WorkerSpec
from tests.cached import ENVIRONMENTS
from workers import replay_job
from workers.warm_runners import HARNESS, base_interpreter


def worker_spec(dataset: str) -> WorkerSpec:
    record = datasets()[dataset]
    site = environments.prepare(catalogue.simulators()[record.simulator], ENVIRONMENTS, lambda text, part: None)
    return WorkerSpec(
        python=base_interpreter(),
        harness=str(HARNESS),
        dataset=str(record.folder),
        evaluator_site=str(site),
        model_server_site="",
        format="",
        isolation="launch",
        sandbox=sandbox.level().number,
    )


def play_document(dataset: str) -> dict[str, object]:
    record = datasets()[dataset]
    tasks = {"seed": 0, "dataset": record.digest, "total_scenarios": record.tasks or 10, "select": {"range": [0, 10]}}
    plan = tasks | {"sweep": {}, "repeat": 1, "params": {}}
    return {
        "definition": dict(record.definition),
        "tasks": plan,
        "params": {},
        "deadline": record.definition["deadline"],
    }


def trace(*steps: tuple[float, ...]) -> bytes:
    return zlib.compress(np.array(steps, "<f4").tobytes())


def test_a_street_is_replayed_and_has_a_scene() -> None:
    replay = replay_job.make(worker_spec("car_street"), play_document("car_street"), 3, trace(*[(1.0, 0.0)] * 20))
    assert len(replay["frames"]) >= 20
    assert replay["scene"]["lanes"] and replay["scene"]["kind"] == "street"
    first, *_, last = replay["frames"]
    assert first["action"] is None and last["action"] == [1.0, 0.0]
    assert [signal["name"] for signal in replay["scene"]["action"]] == ["accel", "lane"]
    declared = datasets()["car_street"].definition["interface"]["observation"]
    shown = [(signal["name"], signal["unit"]) for signal in replay["scene"]["observation"]]
    assert shown == list(zip(declared["names"], declared["units"], strict=True))
    assert len(last["observation"]) == len(shown) == 32
    assert last["red_lights"] == 0
    own_speed = next(car["speed"] for car in last["vehicles"] if car["id"] == "ego")
    assert last["observation"][0] == pytest.approx(own_speed, abs=0.01)


def test_two_replays_are_identical() -> None:
    steps = trace(*[(0.5, 0.1)] * 10)
    first, second = (
        replay_job.make(worker_spec("car_street"), play_document("car_street"), 5, steps) for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize(
    ("dataset", "steps", "observation"),
    [("noop", 1, 4), ("cartpole", 3, 4), ("highway", 2, 25), ("mujoco_hopper", 3, 11)],
)
def test_every_simulator_has_a_picture(dataset: str, steps: int, observation: int) -> None:
    size = len(datasets()[dataset].definition["interface"]["action"]["names"])
    replay = replay_job.make(worker_spec(dataset), play_document(dataset), 0, trace(*[(1.0,) * size] * steps))
    assert len(replay["frames"]) == steps + 1
    assert replay["frames"][0]["action"] is None and replay["frames"][-1]["action"] == [1.0] * size
    assert len(replay["frames"][-1]["observation"]) == len(replay["scene"]["observation"]) == observation
    assert replay["scene"]["kind"] == ("signals" if dataset == "noop" else "drawing")
    picture = ElementTree.fromstring(svg(replay | {"title": "<t>", "outcome": "ok", "result": {"status": "ok"}}))
    assert replay["scene"]["action"][0]["name"] in "".join(picture.itertext())


def test_the_view_of_a_highway_follows_the_ego() -> None:
    replay = replay_job.make(worker_spec("highway"), play_document("highway"), 0, trace(*[(3.0,)] * 5))
    for frame in replay["frames"]:
        corners, (x, _) = frame["drawing"]["at"]["ego"], frame["drawing"]["centre"]
        middle = sum(corners[::2]) / 4
        assert x - replay["scene"]["drawing"]["view"][2] / 2 < middle < x
    vehicles = [shape for shape in replay["scene"]["drawing"]["objects"] if shape["role"] == "vehicle"]
    assert len(vehicles) == 20
    assert len(json.dumps(replay)) < 60_000


def test_a_simulator_that_fails_is_an_error() -> None:
    with pytest.raises(replay_job.NothingToShow, match="raise_at"):
        play = play_document("noop") | {"params": {"raise_at": 0}}
        play["tasks"] = play["tasks"] | {"params": {"raise_at": 0}}  # type: ignore[operator]
        replay_job.make(worker_spec("noop"), play, 0, trace((0.0,) * 4))


@pytest.mark.parametrize("dataset", ["noop", "cartpole", "highway", "car_street", "mujoco_hopper"])
def test_actions_of_another_shape_are_refused_for_good_and_not_asked_for_again(dataset: str) -> None:
    odd = np.zeros(13, "<f4")
    odd[:] = np.nan
    with pytest.raises(replay_job.NothingToShow, match="simulator: "):
        replay_job.make(worker_spec(dataset), play_document(dataset), 0, zlib.compress(odd.tobytes()[:-2]))


def test_an_invalid_trace_is_refused() -> None:
    with pytest.raises(replay_job.CannotReplay):
        replay_job.make(worker_spec("noop"), play_document("noop"), 0, b"not a trace")


def test_an_evaluator_that_cannot_start_is_reported_with_its_output() -> None:
    from dataclasses import replace

    with pytest.raises(replay_job.CannotReplay, match="No module named"):
        replay_job.make(
            replace(worker_spec("noop"), evaluator_site="/nonexistent", sandbox=None), play_document("noop"), 0, b""
        )
