"""Evaluator with the Gymnasium simulator, in its environment and in this machine's best sandbox."""

import json
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets.catalogue import datasets
from runtimes import catalogue, environments
from runtimes.harness.runner import framed_socket
from runtimes.harness.runner.processes import WorkerSpec
from runtimes.harness.sandbox import level
from tests.cached import ENVIRONMENTS
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of, worker_spec

BASELINES = Path("runtimes/baselines")
ZERO = (BASELINES / "zero.py").read_bytes()


def site(environment: environments.Environment) -> str:
    return str(environments.prepare(environment, ENVIRONMENTS, lambda message, part: None))


@cache
def best_level() -> int | None:
    number = level().number
    return number if number > 1 else None


def spec_of(dataset: str, **changes: Any) -> WorkerSpec:
    values: dict[str, Any] = {
        "evaluator_site": site(catalogue.simulators()[datasets()[dataset].simulator]),
        "model_server_site": site(catalogue.runtime("python").formats["python"].environment),
        "isolation": "scenario",
        "sandbox": best_level(),
    }
    return worker_spec(dataset, **(values | changes))


def outcomes(results: list[dict[str, Any]]) -> list[str]:
    return [result["metrics"]["outcome"] for result in results]


def test_the_baseline_balances_the_pole_and_constant_zero_actions_do_not() -> None:
    play = play_of("cartpole", isolation="scenario")
    with evaluator_pair(spec_of("cartpole"), (BASELINES / "cartpole/cartpole.py").read_bytes(), play) as pair:
        baseline_results = pair.run(0, 10)
    assert outcomes(baseline_results) == ["balanced"] * 10
    assert {result["metrics"]["length"] for result in baseline_results} == {500}
    with evaluator_pair(spec_of("cartpole"), ZERO, play) as pair:
        zero_results = pair.run(0, 10)
    assert outcomes(zero_results) == ["fell"] * 10
    assert all(result["metrics"]["return"] == result["metrics"]["length"] < 50 for result in zero_results)


def test_highway_results_are_equal_in_any_order_and_labelled_by_lanes_and_density() -> None:
    play = play_of("highway", isolation="scenario", select={"tasks": [0, 20, 47]})
    with evaluator_pair(spec_of("highway"), (BASELINES / "highway/highway.py").read_bytes(), play) as pair:
        in_order = pair.run(0, 3)
        in_reverse_order = [pair.run(task, task + 1)[0] for task in (2, 1, 0)][::-1]
    for first, second in zip(in_order, in_reverse_order, strict=True):
        assert {**first, "timing": None} == {**second, "timing": None}
    assert [result["status"] for result in in_order] == ["ok"] * 3
    assert [(result["scenario"]["lanes"], result["scenario"]["density"]) for result in in_order] == [
        (2, 0.8),
        (3, 1.0),
        (4, 1.6),
    ]
    assert all(0 < result["metrics"]["mean_speed"] < 40 for result in in_order)


def test_actions_take_effect_latency_steps_later() -> None:
    constant_model = b"class Model:\n    def act(self, observation):\n        return [1.0]\n"
    play = play_of("cartpole", isolation="scenario", record="all", params={"latency_steps": 3})
    with evaluator_pair(spec_of("cartpole"), constant_model, play) as pair:
        pair.run(0, 1)
    applied = np.frombuffer(zlib.decompress(pair.artifacts[0]), np.float32)
    assert applied[:3].tolist() == [0.0] * 3
    assert set(applied[3:].tolist()) == {1.0}


def test_actions_out_of_range_are_clipped_and_counted() -> None:
    out_of_range_model = b"class Model:\n    def act(self, observation):\n        return [7.5]\n"
    with evaluator_pair(spec_of("cartpole"), out_of_range_model, play_of("cartpole", isolation="scenario")) as pair:
        (result,) = pair.run(0, 1)
    assert result["status"] == "ok"
    assert result["metrics"]["clipped_actions"] == result["metrics"]["length"]


def test_a_models_fault_keeps_the_metrics_so_far_and_is_the_outcome() -> None:
    model_with_nan = (
        b"class Model:\n    n = 0\n    def act(self, observation):\n"
        b"        self.n += 1\n        return [1.0 if self.n < 5 else float('nan')]\n"
    )
    with evaluator_pair(spec_of("cartpole"), model_with_nan, play_of("cartpole", isolation="scenario")) as pair:
        (result,) = pair.run(0, 1)
    assert (result["status"], result["metrics"]["outcome"], result["metrics"]["length"]) == ("invalid", "invalid", 4)


def test_a_replay_has_the_signals_and_the_drawing_of_each_step() -> None:
    with evaluator_pair(spec_of("cartpole"), ZERO, play_of("cartpole", isolation="scenario")) as pair:
        channel = pair.evaluator.channel
        channel.send({"type": "replay", "task": 0, "trace": zlib.compress(bytes(8))})
        reply = channel.receive(60)
    assert isinstance(reply, framed_socket.ReplayDone)
    assert reply.replay is not None and reply.replay["scene"]["kind"] == "drawing"
    assert [(frame["action"], frame["reward"]) for frame in reply.replay["frames"]] == [
        (None, None),
        *[([0.0], 1.0)] * 2,
    ]
    objects = {shape["id"] for shape in reply.replay["scene"]["drawing"]["objects"]}
    for frame in reply.replay["frames"]:
        assert frame["drawing"]["at"].keys() == objects == {"cart", "pole", "axle"}
        (x, _, *_), position = frame["drawing"]["at"]["axle"], frame["observation"][0]
        assert x == pytest.approx(position, abs=0.001)


def set_up(definition: dict[str, Any], folder: Path, dataset: str = "cartpole") -> framed_socket.Message:
    """Set an evaluator up for a dataset with this definition; return its reply."""
    folder.chmod(0o755)
    (folder / "dataset.json").write_text(json.dumps(definition))
    pair = EvaluatorPair(replace(spec_of(dataset), dataset=str(folder), sandbox=None), ZERO)
    try:
        return pair.set_up(play_of(dataset) | {"definition": definition})
    finally:
        pair.end()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"env": "os:CartPole-v1"}, "an environment's id has no colon"),
        ({"env": "NoSuchThing-v0"}, "NameNotFound"),
        ({"env": "MountainCar-v0"}, "declares observations float32[4], the environment has float32[2]"),
        (
            {"env": "Blackjack-v1", "interface": None},
            "the observation space is a Tuple; only Box and Discrete are supported",
        ),
    ],
)
def test_a_dataset_with_a_wrong_definition_cannot_be_set_up(changes: dict[str, Any], text: str, tmp_path: Path) -> None:
    reply = set_up(dict(datasets()["cartpole"].definition) | changes, tmp_path)
    assert isinstance(reply, framed_socket.Broken)
    assert text in reply.reason


def test_a_dataset_cannot_import_a_package_that_is_not_allowed(tmp_path: Path) -> None:
    with pytest.raises(framed_socket.PeerClosed):
        set_up(dict(datasets()["cartpole"].definition) | {"package": "antigravity"}, tmp_path)


def test_a_dataset_without_an_interface_has_the_interface_of_its_environment(tmp_path: Path) -> None:
    definition = dict(datasets()["cartpole"].definition)
    definition |= {"env": "MountainCarContinuous-v0", "interface": None}
    assert isinstance(set_up(definition, tmp_path), framed_socket.Ready)


@pytest.mark.parametrize(("sleep", "most"), [("0", 20), ("0.4", 3)])
def test_a_dry_run_takes_a_few_steps_and_fewer_with_a_slow_model(sleep: str, most: int) -> None:
    model = (BASELINES / "cartpole/cartpole.py").read_bytes()
    slow = "lambda *arguments: time.sleep({sleep}) or answer(*arguments)"
    model += f"\nimport time\nanswer = Model.act\nModel.act = {slow.format(sleep=sleep)}\n".encode()
    play = play_of("cartpole", isolation="scenario", dry_run=True, deadline=10.0)
    with evaluator_pair(spec_of("cartpole"), model, play) as pair:
        (result,) = pair.run(0, 1)
    assert result["status"] == "ok"
    assert 1 < result["metrics"]["length"] <= most
