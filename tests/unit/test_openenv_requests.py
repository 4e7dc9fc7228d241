"""Requests of OpenEnv's clients: which action, which scenario and which caller they are, decided without a process."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.catalogue import datasets
from local_play.openenv_server.__main__ import main
from local_play.openenv_server.actions import InvalidAction, action_values
from local_play.openenv_server.guard import refusal
from local_play.scenario_choice import Chosen, InvalidReset, ScenarioChoice
from runtimes.harness.simulators.base import Interface

STREET = Interface.of(datasets()["car_street"].definition["interface"]).action
HUMANOID = Interface.of(datasets()["mujoco_humanoid"].definition["interface"]).action
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(NUMBERS, min_size=17, max_size=17))
def test_values_by_name_are_the_values_in_the_order_of_the_action_space(values: list[float]) -> None:
    named = dict(zip(HUMANOID.names, values, strict=True))
    shuffled = dict(sorted(named.items(), key=lambda item: item[0][::-1]))
    assert action_values(shuffled, HUMANOID) == action_values({"values": values}, HUMANOID) == values


def test_metadata_is_not_an_entry_of_an_action() -> None:
    assert action_values({"accel": 1, "lane": 0.5, "metadata": {"policy": 3}}, STREET) == [1.0, 0.5]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "An action has either `values` or one field per name."),
        ({"values": [0, 0], "lane": 0}, "An action has either `values` or one field per name."),
        ({"values": [0]}, "The action has 2 numbers; 1 came."),
        ({"values": "00"}, "`values` is a list of numbers, not '00'."),
        ({"values": [0, float("nan")]}, "The action's 'lane' is not finite (nan)."),
        ({"values": [10**400, 0]}, "The action's 'accel' is not finite (inf)."),
        ({"values": [True, 0]}, "The action's 'accel' is a number, not True."),
        ({"values": [[0], 0]}, "The action's 'accel' is a number, not [0]."),
        ({"accel": 0}, "The action lacks the field 'lane'."),
        ({"accel": 0, "lanes": 0}, "The action has no field 'lanes'."),
        ({"accel": None, "lane": 0}, "The action's 'accel' is a number, not None."),
    ],
)
def test_an_action_that_does_not_fit_is_refused_with_what_to_send(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidAction) as refused:
        action_values(fields, STREET)
    usage = 'The scenario goes on: step again with {"values": [2 numbers: accel in m/s2, lane]}.'
    assert str(refused.value) == f"{reason} {usage}"


def test_resets_without_arguments_play_each_scenario_once_and_then_the_next_repetition() -> None:
    choice = ScenarioChoice("cartpole", 3)
    chosen = [choice.choose() for _ in range(7)]
    assert [(one.scenario, one.repeat) for one in chosen] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2)]
    assert {one.seed for one in chosen} == {0}


@given(seed=st.integers(0, 2**63 - 1), total=st.integers(1, 50))
def test_a_seed_draws_an_order_of_all_scenarios(seed: int, total: int) -> None:
    choice, again = ScenarioChoice("noop", total), ScenarioChoice("noop", total)
    again.choose(scenario=0)
    drawn = [choice.choose(seed=seed), *(choice.choose() for _ in range(total - 1))]
    assert drawn == [again.choose(seed=seed), *(again.choose() for _ in range(total - 1))]
    assert Counter(one.scenario for one in drawn) == dict.fromkeys(range(total), 1)
    assert {(one.repeat, one.seed) for one in drawn} == {(0, seed)}


def test_seeds_draw_different_scenarios_so_that_parallel_clients_do_not_play_the_same() -> None:
    first = {ScenarioChoice("car_street", 288).choose(seed=seed).scenario for seed in range(32)}
    assert len(first) > 24


def test_a_named_scenario_leaves_the_order_as_it_is() -> None:
    choice = ScenarioChoice("cartpole", 100)
    assert choice.choose(scenario=17, repeat=2, seed=5) == Chosen(scenario=17, repeat=2, seed=5)
    assert choice.choose() == Chosen(scenario=0, repeat=0, seed=5)


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ({"scenario": 100}, "`scenario` is a whole number from 0 to 99 for cartpole, not 100."),
        ({"scenario": -1}, "`scenario` is a whole number from 0 to 99 for cartpole, not -1."),
        ({"scenario": "17"}, "`scenario` is a whole number from 0 to 99 for cartpole, not '17'."),
        ({"scenario": True}, "`scenario` is a whole number from 0 to 99 for cartpole, not True."),
        ({"seed": 1.5}, "`seed` is a whole number from 0 to 9223372036854775807, not 1.5."),
        ({"seed": 2**63}, "`seed` is a whole number from 0 to 9223372036854775807, not 9223372036854775808."),
        ({"scenario": 1, "repeat": -1}, "`repeat` is a whole number from 0 to 9999999, not -1."),
        ({"repeat": 1}, "`repeat` is of a scenario: name `scenario` too."),
    ],
)
def test_a_reset_that_names_no_scenario_is_refused_and_changes_nothing(named: dict[str, object], reason: str) -> None:
    choice = ScenarioChoice("cartpole", 100)
    with pytest.raises(InvalidReset) as refused:
        choice.choose(**named)
    assert str(refused.value) == reason
    assert choice.choose() == Chosen(scenario=0, repeat=0, seed=0)


TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("path", "headers", "token", "status"),
    [
        ("/ws", {"host": "localhost:8000"}, "", None),
        ("/ws", {"host": "[::1]:8000"}, "", None),
        ("/ws", {"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:8000"}, "", 403),
        ("/ws", {"host": "rebound.example:8000"}, "", 421),
        ("/ws", {}, "", 421),
        ("/ws", {"host": "trainer:8000"}, TOKEN, 401),
        ("/ws", {"host": "trainer:8000", "authorization": "Bearer 0123456789abcdeg"}, TOKEN, 401),
        ("/ws", {"host": "trainer:8000", "authorization": f"bearer {TOKEN}"}, TOKEN, None),
        ("/health", {"host": "trainer:8000"}, TOKEN, None),
        ("/metadata", {"host": "trainer:8000"}, TOKEN, 401),
    ],
)
def test_web_pages_other_names_and_callers_without_the_token_are_refused(
    path: str, headers: dict[str, str], token: str, status: int | None
) -> None:
    refused = refusal(path, headers, token)
    assert (refused and refused[0]) == status


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--dataset", "fmu"], "fmu is a template without a world of its own"),
        (["--dataset", "program"], "program has no scenarios to step through: its programs are worlds of their own"),
        (["--dataset", "cartpol"], "There is no built-in dataset 'cartpol'. Did you mean cartpole?"),
        (["--dataset", "cartpole", "--host", "0.0.0.0"], "can be reached from other machines, so it needs a token"),
        (["--dataset", "cartpole", "--param", "speed=1"], "The dataset cartpole has no parameter 'speed'"),
        (["--dataset", "cartpole", "--param", "latency_steps=99"], "The parameter 'latency_steps' lies in 0..10"),
        (["--dataset", "cartpole", "--token-file", "missing"], "--token-file missing cannot be read"),
        (["--dataset", "cartpole", "--token-file", "short"], "--token-file short: the token has 5 characters"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is_installed(
    arguments: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("short\n")
    assert main(arguments) == 2
    assert reason in capsys.readouterr().err
    assert not Path("var").exists()


def test_every_dataset_with_scenarios_has_distinct_names_of_observations_and_actions() -> None:
    for dataset in datasets().values():
        interface = Interface.of(dataset.definition["interface"])
        for space in (interface.observation, interface.action):
            assert len(set(space.names)) == len(space.names), json.dumps(dataset.name)
