"""Evaluator with PettingZoo's environments, in their environment and in this machine's best sandbox."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from api.rendering.pictures import svg
from datasets.catalogue import datasets
from datasets.versions.scenarios import extend
from runtimes.harness.runner import framed_socket
from scripts.dataset_tables import pettingzoo
from tests.contracts.harness_processes import evaluator_pair, play_of
from tests.simulators.test_gymnasium import BASELINES, ZERO, outcomes, set_up, spec_of

#: Legal actions that depend on the observation, so that two equal results had equal observations.
REFLEX = b"""
class Model:
    def reset(self, info):
        self.action, self.seen = info["action"], 0.0
    def act(self, observation):
        self.seen += float(sum(observation))
        low, high = self.action.low[0], self.action.high[0]
        count = self.action.shape[0]
        if count > 1:
            return [low + (high - low) * ((self.seen * (i + 1)) % 1.0) for i in range(count)]
        legal = [i for i, allowed in enumerate(observation[-int(high) - 1:]) if allowed]
        return [float(legal[int(self.seen) % len(legal)])]
"""


def played(dataset: str, model: bytes, tasks: list[int]) -> list[dict[str, Any]]:
    """Run tasks in this order in new processes; return their results without times."""
    play = play_of(dataset, isolation="scenario", select={"tasks": tasks})
    with evaluator_pair(spec_of(dataset), model, play) as pair:
        return [result | {"timing": None} for result in pair.run(0, len(tasks))]


@pytest.mark.parametrize("dataset", sorted(pettingzoo.ALL))
def test_a_world_is_the_same_in_any_order_and_process_and_has_a_drawing(dataset: str) -> None:
    play = play_of(dataset, isolation="scenario", select={"tasks": [3, 2, 1]}, record="all")
    with evaluator_pair(spec_of(dataset), REFLEX, play) as pair:
        first = [result | {"timing": None} for result in pair.run(0, 3)]
        pair.evaluator.channel.send({"type": "replay", "task": 0, "trace": pair.artifacts[0]})
        reply = pair.evaluator.channel.receive(60)
    second = played(dataset, REFLEX, [1, 2, 3])
    assert [result["status"] for result in first] == ["ok"] * 3, first
    for one, other in zip(first, reversed(second), strict=True):
        assert one["metrics"] == other["metrics"] and one["scenario"] == other["scenario"]
    assert {metric["name"] for metric in datasets()[dataset].definition["metrics"]} == set(first[0]["metrics"])
    assert isinstance(reply, framed_socket.ReplayDone) and reply.replay is not None, reply
    replay = reply.replay
    assert len(replay["frames"]) == first[0]["metrics"]["length"] + 1
    rewards = [frame["reward"] for frame in replay["frames"][1:]]
    assert sum(rewards) == pytest.approx(first[0]["metrics"]["return"])
    declared = {shape["id"] for shape in replay["scene"]["drawing"]["objects"]}
    assert all(frame["drawing"]["at"].keys() <= declared for frame in replay["frames"])
    ElementTree.fromstring(svg(replay | {"title": dataset, "outcome": "ok", "result": {"status": "ok"}}))


def test_the_baselines_are_better_than_doing_nothing() -> None:
    def mean_return(dataset: str, model: bytes) -> float:
        return sum(result["metrics"]["return"] for result in played(dataset, model, list(range(20)))) / 20

    for dataset in pettingzoo.BASELINES:
        baseline = BASELINES[dataset].read_bytes()
        assert mean_return(dataset, baseline) > mean_return(dataset, ZERO), dataset


def test_games_are_won_lost_or_ended_by_an_illegal_move() -> None:
    baseline = BASELINES["pettingzoo_connect_four"].read_bytes()
    assert set(outcomes(played("pettingzoo_connect_four", baseline, list(range(8))))) == {"win"}
    worst = b"class Model:\n    def act(self, o):\n        return [float(max(i for i in range(9) if o[18 + i]))]\n"
    assert {"win", "loss"} <= set(outcomes(played("pettingzoo_tictactoe", worst, list(range(40)))))
    illegal = played("pettingzoo_tictactoe", ZERO, [0, 1, 2])
    for result in illegal:
        metrics = result["metrics"]
        assert (metrics["outcome"], metrics["return"], metrics["length"]) == ("illegal_action", -1.0, 2)


def test_a_users_scenarios_choose_the_agent_and_the_policy_of_the_others(tmp_path: Path) -> None:
    built_in = datasets()["pettingzoo_tictactoe"]
    described = {"title": "T", "description": "", "tasks": 4, "scenarios": "lines.ndjson"}
    dataset = extend(built_in, name="games", version="1", digest="sha256:" + "0" * 64, description=described)
    folder = tmp_path / "games"
    shutil.copytree(built_in.folder, folder)
    scenarios = [
        {"index": 0, "agent": "player_1", "others": "still"},
        {"index": 1, "agent": "player_2", "others": "still"},
        {"index": 2, "agent": "player_2", "others": "random"},
        {"index": 3, "agent": "player_1", "others": "still"},
    ]
    (folder / "scenarios.ndjson").write_text("".join(json.dumps(scenario) + "\n" for scenario in scenarios))
    for path in (tmp_path, folder, *folder.iterdir()):
        path.chmod(0o755)
    # Takes the last legal square; an agent that stands still takes the first one.
    last = b"class Model:\n    def act(self, o):\n        return [float(max(i for i in range(9) if o[18 + i]))]\n"
    play = play_of("pettingzoo_tictactoe", isolation="scenario", select={"range": [0, 4]}, record="all")
    play |= {"definition": dict(dataset.definition)}
    with evaluator_pair(replace(spec_of("pettingzoo_tictactoe"), dataset=str(folder)), last, play) as pair:
        first, second, _, again = (result["metrics"] for result in pair.run(0, 4))
        pair.evaluator.channel.send({"type": "replay", "task": 1, "trace": pair.artifacts[1]})
        reply = pair.evaluator.channel.receive(60)
    assert first == again and (first["outcome"], first["length"]) == ("win", 3)  # squares 8, 7, 6
    assert (second["outcome"], second["length"]) == ("loss", 2)  # the other has 0, 1, 2 before
    assert isinstance(reply, framed_socket.ReplayDone) and reply.replay is not None
    assert reply.replay["frames"][0]["drawing"]["at"].keys() == {"first-0-0", "first-0-1"}


#: The same moves, once from the array and once from PettingZoo's own dictionary.
FIRST_LEGAL = b"""
class Model:
    def act(self, observation):
        return [float(next(i for i in range(7) if observation[84 + i]))]
"""
FIRST_LEGAL_OF_A_DICT = b"""
class Model:
    spaces = "gymnasium"
    def act(self, observation):
        board, mask = observation["observation"], observation["action_mask"]
        assert board.shape == (6, 7, 2) and board.dtype == mask.dtype == "int8"
        return mask.argmax()
"""


def test_a_model_that_asks_for_the_dictionary_of_pettingzoo_has_the_results_of_one_that_gets_the_array() -> None:
    tasks = [0, 1, 2, 3]
    results = played("pettingzoo_connect_four", FIRST_LEGAL, tasks)
    assert [result["status"] for result in results] == ["ok"] * 4
    assert played("pettingzoo_connect_four", FIRST_LEGAL_OF_A_DICT, tasks) == results


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"interface": datasets()["cartpole"].definition["interface"]}, "declares observations float32[4]"),
        ({"others": "clever"}, "clever"),
    ],
)
def test_a_dataset_with_a_wrong_definition_cannot_be_set_up(changes: dict[str, Any], text: str, tmp_path: Path) -> None:
    reply = set_up(dict(datasets()["pettingzoo_tictactoe"].definition) | changes, tmp_path, "pettingzoo_tictactoe")
    assert isinstance(reply, framed_socket.Broken)
    assert text in reply.reason


def test_a_dataset_cannot_name_an_environment_that_is_not_allowed(tmp_path: Path) -> None:
    definition = dict(datasets()["pettingzoo_tictactoe"].definition) | {"env": "antigravity"}
    with pytest.raises(framed_socket.PeerClosed):
        set_up(definition, tmp_path, "pettingzoo_tictactoe")
