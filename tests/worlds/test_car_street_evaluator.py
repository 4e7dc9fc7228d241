"""The street behind the platform's own evaluator and hosts, in their environments and behind this machine's sandbox."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api.rendering.replay import svg
from datasets.catalogue import datasets
from runtimes import catalogue
from runtimes.harness.runner import framed_socket
from runtimes.harness.simulators.base import Scenario
from tests.contracts.harness_processes import evaluator_pair, play_of
from tests.worlds.street_world import BASELINES, SPECS, model, world
from tests.worlds.test_small_worlds import kit_of, site

IDM = (BASELINES / "idm.py").read_bytes()
#: A few of every street.
CHOSEN = list(range(0, 288, 37))
PLAY: dict[str, Any] = {"isolation": "scenario", "select": {"tasks": CHOSEN}}


def test_the_evaluator_tells_what_the_bare_world_tells() -> None:
    with evaluator_pair(kit_of("car_street"), IDM, play_of("car_street", **PLAY)) as played:
        results = played.play(0, len(CHOSEN))
    assert [result["status"] for result in results] == ["ok"] * len(CHOSEN)
    driver = model("idm")
    for result in results[:4]:
        told = result["scenario"]
        seen, over = world().reset(Scenario(index=told["index"], seed=told["seed"], spec=SPECS[told["index"]])), False
        while not over:
            seen, over = world().step(np.array(driver.act(seen), dtype=np.float32))
        assert json.loads(json.dumps(world().outcome(None))) == result["metrics"], told["name"]


def test_a_model_that_raises_on_the_way_scores_nothing_and_the_next_scenario_is_played() -> None:
    source = """
class Model:
    def __init__(self):
        self.left = 30
    def act(self, observation):
        self.left -= 1
        if not self.left:
            raise RuntimeError("lost")
        return 0.5, 0.0
"""
    with evaluator_pair(kit_of("car_street"), source, play_of("car_street", **PLAY)) as played:
        results = played.play(0, 3)
    assert [result["status"] for result in results] == ["failed"] * 3
    assert [result["metrics"]["outcome"] for result in results] == ["failed"] * 3
    assert [result["metrics"]["score"] for result in results] == [0.0] * 3
    assert all(result["metrics"]["seconds"] == pytest.approx(2.9) for result in results)


def test_a_recorded_drive_is_drawn_from_its_actions() -> None:
    play = play_of("car_street", record="all", **PLAY)
    with evaluator_pair(kit_of("car_street"), IDM, play) as played:
        (result,) = played.play(2, 3)
        trace = played.artifacts[2]
        played.evaluator.channel.send({"type": "replay", "task": 2, "trace": trace})
        answer = played.evaluator.channel.receive(60)
    assert isinstance(answer, framed_socket.ReplayDone)
    assert answer.error is None
    assert answer.replay is not None
    picture = svg({"title": result["scenario"]["name"], "outcome": result["metrics"]["outcome"], **answer.replay})
    assert picture.startswith("<svg")
    assert 'class="ego"' in picture


@pytest.mark.parametrize(("runtime", "kind"), [("onnx", "onnx"), ("tensorflow", "tflite"), ("tensorflow", "keras")])
def test_the_trained_baseline_drives_in_every_format(runtime: str, kind: str) -> None:
    found = catalogue.runtime(runtime).formats[kind]
    kit = kit_of("car_street", model_server_site=site(found.environment), format=kind, isolation="launch")
    binary = Path(BASELINES / f"car_street.{kind}").read_bytes()
    play = play_of("car_street", isolation="launch", select={"tasks": CHOSEN})
    with evaluator_pair(kit, binary, play) as played:
        results = played.play(0, len(CHOSEN))
    assert [result["status"] for result in results] == ["ok"] * len(CHOSEN)
    scores = [result["metrics"]["score"] for result in results]
    assert sum(scores) / len(scores) > 60, scores


def test_the_definition_is_what_the_platform_reads() -> None:
    definition = datasets()["car_street"].definition
    assert definition["simulator"] == "sumo"
    assert definition["tasks"] == len(SPECS)
    assert definition["score"]["metric"] in {metric["name"] for metric in definition["metrics"]}
    assert set(definition["group_by"]) <= set(SPECS[0])
