"""Evaluator with car_street and model servers, in their environments and in this machine's best sandbox."""

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
from tests.simulators.car_street import BASELINES, SPECS, model, simulator
from tests.simulators.test_gymnasium import site, spec_of

IDM_MODEL = (BASELINES / "idm.py").read_bytes()
#: Indices of scenarios of every street.
SCENARIOS = list(range(0, 288, 37))
PLAY: dict[str, Any] = {"isolation": "scenario", "select": {"tasks": SCENARIOS}}


def test_results_of_the_evaluator_equal_results_of_the_simulator_alone() -> None:
    with evaluator_pair(spec_of("car_street"), IDM_MODEL, play_of("car_street", **PLAY)) as pair:
        results = pair.run(0, len(SCENARIOS))
    assert [result["status"] for result in results] == ["ok"] * len(SCENARIOS)
    driver = model("idm")
    for result in results[:4]:
        index, seed = result["scenario"]["index"], result["scenario"]["seed"]
        observation, done = simulator().reset(Scenario(index=index, seed=seed, spec=SPECS[index])), False
        while not done:
            observation, done = simulator().step(np.array(driver.act(observation), dtype=np.float32))
        assert json.loads(json.dumps(simulator().outcome(None))) == result["metrics"], result["scenario"]["name"]


def test_a_model_that_raises_scores_0_and_the_next_scenario_runs() -> None:
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
    with evaluator_pair(spec_of("car_street"), source, play_of("car_street", **PLAY)) as pair:
        results = pair.run(0, 3)
    assert [result["status"] for result in results] == ["failed"] * 3
    assert [result["metrics"]["outcome"] for result in results] == ["failed"] * 3
    assert [result["metrics"]["score"] for result in results] == [0.0] * 3
    assert all(result["metrics"]["seconds"] == pytest.approx(2.9) for result in results)


def test_a_replay_is_drawn_from_recorded_actions() -> None:
    setup = play_of("car_street", record="all", **PLAY)
    with evaluator_pair(spec_of("car_street"), IDM_MODEL, setup) as pair:
        (result,) = pair.run(2, 3)
        trace = pair.artifacts[2]
        pair.evaluator.channel.send({"type": "replay", "task": 2, "trace": trace})
        reply = pair.evaluator.channel.receive(60)
    assert isinstance(reply, framed_socket.ReplayDone)
    assert reply.error is None
    assert reply.replay is not None
    image = svg({"title": result["scenario"]["name"], "outcome": result["metrics"]["outcome"], **reply.replay})
    assert image.startswith("<svg")
    assert 'class="ego"' in image


@pytest.mark.parametrize(("runtime", "kind"), [("onnx", "onnx"), ("tensorflow", "tflite"), ("tensorflow", "keras")])
def test_the_trained_baseline_drives_in_every_format(runtime: str, kind: str) -> None:
    environment = catalogue.runtime(runtime).formats[kind].environment
    spec = spec_of("car_street", model_server_site=site(environment), format=kind, isolation="launch")
    binary = Path(BASELINES / f"car_street.{kind}").read_bytes()
    setup = play_of("car_street", isolation="launch", select={"tasks": SCENARIOS})
    with evaluator_pair(spec, binary, setup) as pair:
        results = pair.run(0, len(SCENARIOS))
    assert [result["status"] for result in results] == ["ok"] * len(SCENARIOS)
    scores = [result["metrics"]["score"] for result in results]
    assert sum(scores) / len(scores) > 60, scores


def test_the_definition_is_consistent_with_the_scenarios() -> None:
    definition = datasets()["car_street"].definition
    assert definition["simulator"] == "sumo"
    assert definition["tasks"] == len(SPECS)
    assert definition["score"]["metric"] in {metric["name"] for metric in definition["metrics"]}
    assert set(definition["group_by"]) <= set(SPECS[0])
