"""Evaluator with MuJoCo's tasks, in their environment and in this machine's best sandbox."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from api.rendering.pictures import svg
from datasets.catalogue import datasets
from datasets.versions.scenarios import extend
from runtimes.harness.runner import framed_socket
from runtimes.harness.simulators.base import Interface
from scripts.dataset_tables import mujoco
from tests.contracts.harness_processes import evaluator_pair, play_of
from tests.simulators.test_gymnasium import BASELINES, ZERO, outcomes, site, spec_of

#: Actions that depend on the observation, so that two equal results had equal observations.
REFLEX = b"""
class Model:
    def reset(self, info):
        self.count = info["action"].shape[0]
    def act(self, observation):
        return [0.3 * float(observation[i % len(observation)]) % 1.0 - 0.5 for i in range(self.count)]
"""


def played(dataset: str, model: bytes, tasks: list[int], **changes: Any) -> list[dict[str, Any]]:
    """Run tasks in this order in new processes; return their results without times."""
    play = play_of(dataset, isolation="scenario", select={"tasks": tasks}, **changes)
    with evaluator_pair(spec_of(dataset), model, play) as pair:
        return [result | {"timing": None} for result in pair.run(0, len(tasks))]


@pytest.mark.parametrize("dataset", sorted(mujoco.ALL))
def test_a_task_is_the_same_in_any_order_and_process_and_has_a_drawing(dataset: str) -> None:
    play = play_of(dataset, isolation="scenario", select={"tasks": [3, 1]}, record="all")
    with evaluator_pair(spec_of(dataset), REFLEX, play) as pair:
        first = [result | {"timing": None} for result in pair.run(0, 2)]
        pair.evaluator.channel.send({"type": "replay", "task": 0, "trace": pair.artifacts[0]})
        reply = pair.evaluator.channel.receive(60)
    second = played(dataset, REFLEX, [1, 3])
    for one, other in zip(first, reversed(second), strict=True):
        assert one["metrics"] == other["metrics"] and one["scenario"] == other["scenario"]
    assert [result["status"] for result in first] == ["ok", "ok"], first
    assert {metric["name"] for metric in datasets()[dataset].definition["metrics"]} == set(first[0]["metrics"])
    assert isinstance(reply, framed_socket.ReplayDone) and reply.replay is not None, reply
    replay = reply.replay
    assert len(replay["frames"]) == first[0]["metrics"]["length"] + 1
    declared = {shape["id"] for shape in replay["scene"]["drawing"]["objects"]}
    assert declared and all(frame["drawing"]["at"].keys() == declared for frame in replay["frames"])
    assert np.isclose(sum(frame["reward"] for frame in replay["frames"][1:]), first[0]["metrics"]["return"])
    picture = ElementTree.fromstring(svg(replay | {"title": dataset, "outcome": "ok", "result": {"status": "ok"}}))
    moving = [element for element in picture.iter() if element.get("class") in ("body", "limb_1")]
    assert moving


def test_observations_have_the_precision_of_the_environment() -> None:
    model = b"""
class Model:
    def act(self, observation):
        assert str(observation.dtype) == "float64", observation.dtype
        assert (observation != observation.astype("float32")).any()
        return [0.0, 0.0, 0.0]
"""
    (result,) = played("mujoco_hopper", model, [0])
    assert result["status"] == "ok"
    assert Interface.of(datasets()["mujoco_hopper"].definition["interface"]).observation.dtype == "float64"


def test_the_baselines_are_better_than_doing_nothing() -> None:
    def mean_return(dataset: str, model: bytes) -> float:
        return sum(result["metrics"]["return"] for result in played(dataset, model, [0, 1, 2, 3])) / 4

    for dataset, margin in (("inverted_pendulum", 900), ("reacher", 2), ("swimmer", 50)):
        name = f"mujoco_{dataset}"
        baseline = BASELINES[name].read_bytes()
        assert mean_return(name, baseline) > mean_return(name, ZERO) + margin
    assert outcomes(played("mujoco_inverted_pendulum", ZERO, [0])) == ["fell"]


def test_a_users_scenarios_set_how_far_the_start_may_differ(tmp_path: Path) -> None:
    built_in = datasets()["mujoco_hopper"]
    described = {"title": "Hops", "description": "", "tasks": 3, "scenarios": "lines.ndjson"}
    dataset = extend(built_in, name="hops", version="1", digest="sha256:" + "0" * 64, description=described)
    folder = tmp_path / "hops"
    shutil.copytree(built_in.folder, folder)
    noise = [0.0, 0.1, 0.0]
    lines = [json.dumps({"index": i, "kwargs": {"reset_noise_scale": scale}}) for i, scale in enumerate(noise)]
    (folder / "scenarios.ndjson").write_text("\n".join(lines) + "\n")
    for path in (tmp_path, folder, *folder.iterdir()):
        path.chmod(0o755)
    definition = {"definition": dict(dataset.definition)}
    play = play_of("mujoco_hopper", isolation="scenario", select={"range": [0, 3]}) | definition
    with evaluator_pair(replace(spec_of("mujoco_hopper"), dataset=str(folder)), ZERO, play) as pair:
        exact, noisy, again = (result["metrics"] for result in pair.run(0, 3))
    assert exact == again and exact != noisy


def test_the_environment_has_no_library_that_draws() -> None:
    from runtimes.catalogue import simulators

    packages = {path.name for path in Path(site(simulators()["mujoco"])).iterdir()}
    assert "mujoco" in packages
    assert not packages & {"OpenGL", "glfw", "imageio", "PIL", "pygame"}
