"""Evaluator with the Gymnasium simulator, in its environment and in this machine's best sandbox."""

import json
import subprocess
import sys
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.services.uploads.shipped_models import shipped
from datasets.catalogue import datasets
from runtimes import catalogue, environments
from runtimes.harness.runner import framed_socket
from runtimes.harness.runner.processes import WorkerSpec
from runtimes.harness.sandbox import level
from tests.cached import ENVIRONMENTS
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of, worker_spec

BASELINES = shipped()
ZERO = BASELINES["zero"].read_bytes()


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
    with evaluator_pair(spec_of("cartpole"), BASELINES["cartpole"].read_bytes(), play) as pair:
        baseline_results = pair.run(0, 10)
    assert outcomes(baseline_results) == ["balanced"] * 10
    assert {result["metrics"]["length"] for result in baseline_results} == {500}
    with evaluator_pair(spec_of("cartpole"), ZERO, play) as pair:
        zero_results = pair.run(0, 10)
    assert outcomes(zero_results) == ["fell"] * 10
    assert all(result["metrics"]["return"] == result["metrics"]["length"] < 50 for result in zero_results)


def test_highway_results_are_equal_in_any_order_and_labelled_by_lanes_and_density() -> None:
    play = play_of("highway", isolation="scenario", select={"tasks": [0, 20, 47]})
    with evaluator_pair(spec_of("highway"), BASELINES["highway"].read_bytes(), play) as pair:
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


CHOOSING = b"""
class Model:
    spaces = "gymnasium"
    def act(self, observation):
        total, dealer, ace = observation
        return int(total < 15 + ace)
"""


def test_a_world_of_a_tuple_is_played_by_a_model_that_gets_a_tuple(tmp_path: Path) -> None:
    definition = dict(datasets()["cartpole"].definition) | {"env": "Blackjack-v1", "interface": None}
    tmp_path.chmod(0o755)
    (tmp_path / "dataset.json").write_text(json.dumps(definition))
    play = play_of("cartpole", isolation="scenario") | {"definition": definition}
    with evaluator_pair(replace(spec_of("cartpole"), dataset=str(tmp_path)), CHOOSING, play) as pair:
        results = pair.run(0, 10)
    assert [result["status"] for result in results] == ["ok"] * 10, results
    assert len({result["metrics"]["return"] for result in results}) > 1


INTEGER = "class Model:\n    {spaces}\n    def act(self, o):\n        return {answer}\n"
RIGHT = "int(o[2] + 0.5 * o[3] > 0)"


def push(answer: str, spaces: str = "pass") -> list[dict[str, Any]]:
    """Play scenarios of cartpole with a model that returns an expression."""
    model = INTEGER.format(answer=answer, spaces=spaces).encode()
    with evaluator_pair(spec_of("cartpole"), model, play_of("cartpole", isolation="scenario")) as pair:
        return [result | {"timing": None} for result in pair.run(0, 2)]


def test_an_int_an_array_and_a_float_that_is_rounded_are_the_same_action() -> None:
    results = push(RIGHT)
    assert outcomes(results) == ["balanced"] * 2
    for answer in (f"[float({RIGHT})]", f"0.3 + 0.6 * {RIGHT}", f"3.0 * {RIGHT} - 1.0"):
        played = push(answer)
        for one, other in zip(results, played, strict=True):
            clipped = other["metrics"].pop("clipped_actions")
            assert clipped == (500 if answer.startswith("3.0") else 0)
            assert one["metrics"] == other["metrics"] | {"clipped_actions": 0}
    assert push(RIGHT, "spaces = 'gymnasium'") == results


def test_a_model_that_asks_for_nothing_may_answer_beyond_a_choice_as_models_always_could() -> None:
    bang_bang = push(f"2 * {RIGHT} - 1")
    assert outcomes(bang_bang) == ["balanced"] * 2
    assert all(result["metrics"]["clipped_actions"] > 0 for result in bang_bang)


@pytest.mark.parametrize("answer", ["2", "0.7"])
def test_an_action_that_the_world_does_not_have_is_invalid_for_a_model_that_asks_for_its_spaces(answer: str) -> None:
    result = push(answer, "spaces = 'gymnasium'")[0]
    assert result["status"] == "invalid"
    assert "Discrete(2)" in result["error"] and "a whole number from 0 to 1" in result["error"], result["error"]


def test_the_declared_spaces_of_every_world_are_those_of_its_environment(tmp_path: Path) -> None:
    program = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from runtimes.harness.simulators import declared_interface as declared, gymnasium, mujoco, pettingzoo\n"
        "modules = {'gymnasium': gymnasium, 'mujoco': mujoco, 'pettingzoo': pettingzoo}\n"
        "from runtimes.harness.dataset_definition import definition_of\n"
        "for document in json.load(sys.stdin):\n"
        "    definition = definition_of(document)\n"
        "    module = modules[definition.simulator]\n"
        "    module.preload(definition)\n"
        "    actual, said = module.create(Path(), definition).interface, declared.declared_interface(definition)\n"
        "    for part in ('observation', 'action'):\n"
        "        spaces = [getattr(each, part).gymnasium for each in (said, actual)]\n"
        "        same = declared.structures.equal(*spaces) or all(space.type == 'Box' for space in spaces)\n"
        "        assert same, (document['name'], *map(str, spaces))\n"
        "    print(document['name'])\n"
    )
    asked: dict[str, list[Any]] = {}
    for dataset in datasets().values():
        if "env" in dataset.definition:
            asked.setdefault(dataset.simulator, []).append(dataset.definition)
    for simulator, definitions in asked.items():
        path = f"{Path.cwd()}:{site(catalogue.simulators()[simulator])}"
        checked = subprocess.run(
            [sys.executable, "-S", "-W", "ignore", "-c", program],
            input=json.dumps(definitions),
            env={"PYTHONPATH": path},
            capture_output=True,
            text=True,
            cwd=tmp_path,  # MuJoCo logs to a file
        )
        assert checked.returncode == 0, checked.stderr
        assert checked.stdout.split() == [definition["name"] for definition in definitions]


@pytest.mark.parametrize(("sleep", "most"), [("0", 20), ("0.4", 3)])
def test_a_dry_run_takes_a_few_steps_and_fewer_with_a_slow_model(sleep: str, most: int) -> None:
    model = BASELINES["cartpole"].read_bytes()
    slow = "lambda *arguments: time.sleep({sleep}) or answer(*arguments)"
    model += f"\nimport time\nanswer = Model.act\nModel.act = {slow.format(sleep=sleep)}\n".encode()
    play = play_of("cartpole", isolation="scenario", dry_run=True, deadline=10.0)
    with evaluator_pair(spec_of("cartpole"), model, play) as pair:
        (result,) = pair.run(0, 1)
    assert result["status"] == "ok"
    assert 1 < result["metrics"]["length"] <= most
