"""Gymnasium environments: the policy trained is the policy measured, on this machine and through an OpenEnv server."""

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import windtunnel.gym
from runtimes import catalogue, environments
from tests.cached import ENVIRONMENTS, tool
from tests.document_commands import ROOT, blocks
from tests.simulators import test_pytorch_models as pytorch
from tests.system.platform_process import PlatformProcess
from tests.system.test_openenv_server import POLICIES, OpenEnvServer
from tests.waiting import until
from windtunnel import WindtunnelError
from windtunnel.local_sessions import LocalSession
from windtunnel.sessions import Refused, ScenarioLost

#: What Gymnasium's checker recommends and worlds of others do not have.
RECOMMENDED = ("ignore:.*A Box (observation|action) space", "ignore:.*For Box action spaces")
pytestmark = pytest.mark.usefixtures("home")
Make = Callable[..., Any]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Any] = []

    def make_one(name: str, **options: Any) -> Any:
        made.append(gymnasium.make(f"windtunnel/{name}", **options))
        return made[-1]

    yield make_one
    for environment in made:
        environment.close()


@pytest.fixture(scope="module")
def openenv_site(prepared_environments: None) -> Path:
    return environments.prepare(catalogue.servers()["openenv_server"], ENVIRONMENTS, lambda message, fraction: None)


@pytest.fixture
def cartpole_server(openenv_site: Path, tmp_path: Path) -> Iterator[OpenEnvServer]:
    server = OpenEnvServer(tmp_path / "openenv", "cartpole")
    yield server
    server.stop()


def play(environment: Any, source: str, scenario: int) -> dict[str, Any]:
    """Play a model of the platform to the end of a scenario; return the last information, with the sum of rewards."""
    names: dict[str, Any] = {}
    exec(source, names)
    model, total = names["Model"](), 0.0
    observation, _ = environment.reset(options={"scenario": scenario})
    if hasattr(model, "reset"):
        model.reset({"seed": 0})
    while True:
        action = np.asarray(model.act(observation), np.float32)
        observation, reward, terminated, truncated, information = environment.step(action)
        total += reward
        if terminated or truncated:
            return dict(information) | {"total": total, "truncated": truncated}


def pid_of(environment: Any) -> int:
    session = environment.unwrapped._session
    assert isinstance(session, LocalSession)
    return session.pid


@pytest.mark.parametrize("dataset", ["car_street", "cartpole", "noop"])
@pytest.mark.filterwarnings(*RECOMMENDED)
def test_an_environment_passes_the_checks_of_gymnasium(make: Make, dataset: str) -> None:
    check_env(make(dataset, scenarios="0-3").unwrapped)


@pytest.mark.parametrize(("dataset", "scenario"), [("car_street", 3), ("cartpole", 17)])
def test_the_policy_trained_is_the_policy_measured(
    platform: PlatformProcess, make: Make, dataset: str, scenario: int
) -> None:
    measured = platform.run(model=POLICIES[dataset].encode(), dataset=dataset, seed=4, scenarios={"tasks": [scenario]})
    [result] = platform.results(measured["id"])
    played = play(make(dataset, seed=4), POLICIES[dataset], scenario)
    assert played["metrics"] == result["metrics"]
    assert (played["scenario_seed"], played["name"]) == (result["scenario"]["seed"], result["scenario"].get("name"))
    assert played["truncated"] == (result["metrics"]["outcome"] in {"balanced", "timeout"})
    score = "return" if dataset == "cartpole" else "score"
    assert played["total"] == pytest.approx(result["metrics"][score])


def test_parameters_are_those_of_a_simulation(platform: PlatformProcess, make: Make) -> None:
    options: dict[str, Any] = {"params": {"latency_steps": 4}}
    measured = platform.run(
        model=POLICIES["cartpole"].encode(), dataset="cartpole", scenarios={"tasks": [2]}, **options
    )
    [result] = platform.results(measured["id"])
    assert play(make("cartpole", **options), POLICIES["cartpole"], 2)["metrics"] == result["metrics"]


def test_a_server_plays_what_this_machine_plays(make: Make, cartpole_server: OpenEnvServer) -> None:
    here = make("cartpole")
    there = make("cartpole", url=cartpole_server.url.replace("http", "ws"))
    assert there.observation_space == here.observation_space and there.action_space == here.action_space
    for environment in (here, there):
        environment.reset(seed=3)
    for _ in range(3):
        first, about = here.reset()
        again, about_there = there.reset()
        assert np.array_equal(first, again) and about == about_there
    assert play(there, POLICIES["cartpole"], 5) == play(here, POLICIES["cartpole"], 5)
    with pytest.raises(Refused):
        there.reset(options={"scenario": 100})
    assert make("dataset", url=cartpole_server.url).unwrapped.dataset == "cartpole"
    with pytest.raises(WindtunnelError, match="serves cartpole, not car_street"):
        make("car_street", url=cartpole_server.url)
    cartpole_server.stop()
    with pytest.raises(WindtunnelError, match="is lost"):
        there.reset()
    with pytest.raises(WindtunnelError, match="windtunnel-server openenv --dataset cartpole"):
        make("cartpole", url=cartpole_server.url)


def test_scenarios_come_in_order_and_a_seed_draws_another(make: Make) -> None:
    environment = make("cartpole", scenarios=[5, 7, 9])

    def played(count: int, **first: Any) -> list[tuple[int, int]]:
        abouts = [environment.reset(**(first if number == 0 else {}))[1] for number in range(count)]
        return [(about["scenario"], about["repeat"]) for about in abouts]

    assert played(4) == [(5, 0), (7, 0), (9, 0), (5, 1)]
    assert environment.reset(options={"scenario": 8, "repeat": 2})[1]["scenario"] == 8
    assert played(2) == [(7, 1), (9, 1)]
    drawn = played(6, seed=1)
    assert sorted(drawn) == [(scenario, repeat) for scenario in (5, 7, 9) for repeat in (0, 1)]
    assert played(6, seed=1) == drawn
    assert any(played(6, seed=seed) != drawn for seed in range(2, 9))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"options": {"scenario": 100}}, "from 0 to 99"),
        ({"options": {"scenario": 1.5}}, "whole number"),
        ({"options": {"repeat": 1}}, "name `scenario` too"),
        ({"options": {"level": 1}}, "no option 'level'"),
    ],
)
def test_a_reset_that_names_nothing_is_refused_and_the_next_goes_on(make: Make, options: Any, text: str) -> None:
    environment = make("cartpole")
    with pytest.raises(WindtunnelError, match=text):
        environment.reset(**options)
    assert environment.reset()[0].shape == (4,)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("cartpole", {"scenarios": [100]}, "from 0 to 99"),
        ("cartpole", {"params": {"speed": 1}}, "speed"),
        ("dataset", {}, "Name a dataset"),
        ("dataset", {"dataset": "nothing"}, "no built-in dataset 'nothing'"),
    ],
)
def test_what_cannot_be_made_is_refused_with_the_next_step(
    make: Make, name: str, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(WindtunnelError, match=text):
        make(name, **options)


def test_an_action_that_is_not_finite_is_refused_and_the_scenario_goes_on(make: Make) -> None:
    environment = make("cartpole").unwrapped
    environment.reset()
    for value in (np.nan, np.inf):
        with pytest.raises(
            Refused, match=rf"^The action's entry 0 \(push\) is {value}, which is not a finite number\.$"
        ):
            environment.step(np.array([value], np.float32))
    with pytest.raises(Refused, match="1 numbers; 2 came"):
        environment.step(np.zeros(2, np.float32))
    assert environment.step(np.array([1.0], np.float32))[1] == 1.0


def test_a_vector_of_a_server_is_one_of_gymnasium(cartpole_server: OpenEnvServer) -> None:
    vector = gymnasium.make_vec("windtunnel/cartpole", num_envs=2, url=cartpole_server.url, scenarios="0-9")
    try:
        assert isinstance(vector, gymnasium.vector.SyncVectorEnv)
        assert vector.reset()[1]["scenario"].tolist() == [0, 0]
        assert vector.step(vector.action_space.sample())[1].tolist() == [1.0, 1.0]
    finally:
        vector.close()


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_environments_are_vectors(vectorization: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads
        vector = gymnasium.make_vec("windtunnel/cartpole", num_envs=3, vectorization_mode=vectorization)
    try:
        observations, information = vector.reset(seed=1)
        assert observations.shape == (3, 4) and len(set(information["scenario"])) > 1
        rewards = vector.step(vector.action_space.sample())[1]
        assert rewards.tolist() == [1.0, 1.0, 1.0]
    finally:
        vector.close()


def test_closing_ends_the_process_and_so_does_the_end_of_the_program(make: Make) -> None:
    environment = make("cartpole")
    environment.reset()
    pid = pid_of(environment)
    environment.close()
    environment.close()
    assert not Path(f"/proc/{pid}").exists()
    program = (
        "import gymnasium, windtunnel.gym; e = gymnasium.make('windtunnel/cartpole'); e.reset();"
        " print(e.unwrapped._session.pid, flush=True)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    until(lambda: not Path(f"/proc/{ended.stdout.strip()}").exists(), message="the process outlives the program")


def test_a_closed_environment_says_that_it_is_closed(make: Make) -> None:
    environment = make("cartpole").unwrapped
    environment.reset()
    environment.close()
    for use in (environment.reset, lambda: environment.step(np.array([1.0], np.float32))):
        with pytest.raises(WindtunnelError, match=r"^The environment is closed\. Make it again\.$"):
            use()


def test_a_process_that_dies_is_a_clear_error(make: Make) -> None:
    environment = make("cartpole")
    environment.reset()
    os.kill(pid_of(environment), signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(ScenarioLost, match=r"was killed by SIGKILL.*Make the environment again"):
            while True:  # the simulator's process ends with it, soon
                environment.reset()
    environment.close()


def test_a_simulator_that_is_killed_is_a_clear_error_and_a_reset_starts_another(make: Make) -> None:
    environment = make("cartpole").unwrapped
    first, _ = environment.reset(options={"scenario": 3})
    os.kill(environment._session.pids[0], signal.SIGKILL)
    with pytest.raises(ScenarioLost, match=r"has ended: killed by SIGKILL. Reset starts another one\."):
        while True:
            _, _, over, _, _ = environment.step(1)
            if over:  # the kernel may take longer to kill a process than the pole to fall
                environment.reset()
    with pytest.raises(Refused, match="No scenario is under way: reset first"):
        environment.step(1)
    assert np.array_equal(environment.reset(options={"scenario": 3})[0], first)


def test_every_dataset_with_scenarios_has_an_id() -> None:
    from datasets.catalogue import datasets

    served = {
        name
        for name, dataset in datasets().items()
        if not dataset.definition.get("gang") and not dataset.definition.get("template")
    }
    assert set(windtunnel.gym.DATASETS) == served
    assert {f"windtunnel/{name}" for name in (*served, windtunnel.gym.ANY)} <= set(gymnasium.registry)


def test_the_id_of_a_module_needs_no_import() -> None:
    program = "import gymnasium; e = gymnasium.make('windtunnel.gym:windtunnel/noop'); e.reset(); e.close()"
    subprocess.run([sys.executable, "-c", program], check=True)


#: Spaces of Gymnasium that are not just arrays of numbers.
CHOICES = {
    "cartpole": ("Discrete(2)", None),
    "highway": ("Discrete(5)", None),
    "pettingzoo_connect_four": ("Discrete(7)", (6, 7, 2)),
    "pettingzoo_tictactoe": ("Discrete(9)", (3, 3, 2)),
}


@pytest.mark.parametrize("dataset", CHOICES)
@pytest.mark.filterwarnings(*RECOMMENDED)
def test_what_is_discrete_or_a_dict_in_gymnasium_is_so_here(make: Make, dataset: str) -> None:
    environment = make(dataset, scenarios="0-3").unwrapped
    action, board = CHOICES[dataset]
    assert repr(environment.action_space) == action
    if board is not None:
        parts = environment.observation_space.spaces
        assert {key: part.shape for key, part in parts.items()} == {
            "observation": board,
            "action_mask": (environment.action_space.n,),
        }
        assert {str(part.dtype) for part in parts.values()} == {"int8"}
        observation, information = environment.reset()
        assert np.array_equal(information["action_mask"], observation["action_mask"])
        assert environment.action_masks().all()
    check_env(environment)
    last = int(environment.action_space.n) - 1
    for refused in (last + 1, -1, np.int64(last + 1), [last + 1]):
        with pytest.raises(Refused, match=rf"not an element of Discrete\({last + 1}\): .* from 0 to {last}\.$"):
            environment.step(refused)
    environment.reset()
    environment.step(last)


def test_the_moves_of_a_dictionary_are_those_of_the_array_that_a_simulation_plays(
    platform: PlatformProcess, make: Make
) -> None:
    model = b"class Model:\n    spaces = 'gymnasium'\n    def act(self, o): return o['action_mask'].argmax()\n"
    chosen: dict[str, Any] = {"dataset": "pettingzoo_connect_four", "seed": 4, "scenarios": {"tasks": [5]}}
    [result] = platform.results(platform.run(model=model, **chosen)["id"])
    played = play(make("pettingzoo_connect_four", seed=4), model.decode(), 5)
    assert played["metrics"] == result["metrics"] and played["scenario_seed"] == result["scenario"]["seed"]


def test_the_api_and_the_client_say_what_a_space_is(platform: PlatformProcess) -> None:
    interface = platform.http.get("/v1/datasets/pettingzoo_connect_four").json()["interface"]
    assert interface["action"]["gymnasium"] == {"type": "Discrete", "n": 7, "start": 0}
    board, mask = interface["observation"]["gymnasium"]["spaces"]
    assert (board["key"], mask["key"]) == ("observation", "action_mask")
    assert board["space"] == {"type": "Box", "shape": [6, 7, 2], "dtype": "int8"}
    shown = subprocess.run(
        [sys.executable, "-m", "windtunnel", "datasets", "get", "cartpole"],
        env={**os.environ, "WINDTUNNEL_URL": platform.url, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "float32[1], Discrete(2): push" in shown.stdout


def pytorch_site() -> Path:
    python = Path(tool("environment", "pytorch"))
    return next((python.parents[1] / "lib").glob("python3*/site-packages"))


def run_program(source: str, folder: Path, site: Path) -> str:
    """Run a program that has the packages of a site as well; return what it prints."""
    program = folder / "program.py"
    program.write_text(f"import sys; sys.path.insert(0, {str(site)!r})\n{source}")
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", program],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return ended.stdout


def documented(text: str) -> str:
    [block] = [block for block in blocks((ROOT / "docs/local.md").read_text()) if text in block.text]
    return block.text


def test_stable_baselines3_trains_on_an_environment(tmp_path: Path) -> None:
    source = (
        "import gymnasium, windtunnel.gym\nfrom stable_baselines3 import PPO\n"
        "environment = gymnasium.make('windtunnel/cartpole')\n"
        "model = PPO('MlpPolicy', environment, n_steps=256, batch_size=64, seed=0, device='cpu').learn(1024)\n"
        "model.save('policy.zip')\nenvironment.close()\n"
    )
    run_program(source, tmp_path, pytorch_site())
    assert (tmp_path / "policy.zip").stat().st_size > 10_000


def test_a_dqn_that_is_trained_and_exported_scores_what_training_showed(tmp_path: Path) -> None:
    script = documented("import DQN")
    assert "learn(50_000)" in script
    script = script.replace("learn(50_000)", "learn(6_000)")
    script += "\nprint(shown)\nagent.save('policy.zip')\n"
    shown = float(run_program(script, tmp_path, pytorch_site()).splitlines()[-1])
    assert shown > 12, "it has learnt nothing"
    agent = (tmp_path / "policy.zip").read_bytes()
    results = pytorch.run("stable_baselines3", agent, (80, 100), seed=1)
    assert np.mean([result["metrics"]["return"] for result in results.values()]) == pytest.approx(shown)


def test_an_agent_that_masks_illegal_moves_trains_on_connect_four_and_plays_legally(tmp_path: Path) -> None:
    source = (
        "import gymnasium, windtunnel.gym\nfrom sb3_contrib import MaskablePPO\n"
        "environment = gymnasium.make('windtunnel/pettingzoo_connect_four', scenarios='0-49')\n"
        "model = MaskablePPO('MultiInputPolicy', environment, n_steps=256, seed=0, device='cpu').learn(1024)\n"
        "model.save('policy.zip')\n"
    )
    run_program(source, tmp_path, pytorch_site())
    agent = (tmp_path / "policy.zip").read_bytes()
    results = pytorch.run("stable_baselines3", agent, (50, 60), dataset="pettingzoo_connect_four")
    assert {result["status"] for result in results.values()} == {"ok"}
    assert {result["metrics"]["outcome"] for result in results.values()} <= {"win", "loss", "draw"}


#: Monte Carlo control over the first move, by PettingZoo's own loop.
LEARNING = """
import numpy as np
from pettingzoo.test import api_test
from windtunnel.pettingzoo import env

game = env("pettingzoo_connect_four", seed=1)
reset = game.reset
game.reset = lambda seed=None, options=None: reset(seed=seed)  # the options of this check are none of ours
api_test(game, num_cycles=50)
game.reset = reset

random, totals, counts, outcomes = np.random.default_rng(1), np.zeros(7), np.ones(7), []
for episode in range(120):
    game.reset()
    opening = None
    for agent in game.agent_iter():
        observation, reward, terminated, truncated, info = game.last()
        if terminated or truncated:
            action = None
            totals[opening] += reward
            counts[opening] += 1
            outcomes.append(info["metrics"]["outcome"])
        else:
            legal = np.flatnonzero(observation["action_mask"])
            best = opening if opening in legal else legal[0]  # the same column again wins soon
            if opening is None:
                opening = best = int(np.argmax(totals / counts + random.random(7) * (episode < 60)))
            action = int(best)
        game.step(action)
print(np.mean([outcome == "win" for outcome in outcomes[60:]]), set(outcomes))
"""


def test_an_agent_of_pettingzoo_plays_and_learns_connect_four(tmp_path: Path) -> None:
    simulator = catalogue.simulators()["pettingzoo"]
    site = environments.prepare(simulator, ENVIRONMENTS, lambda message, fraction: None)
    printed = run_program(LEARNING, tmp_path, site).splitlines()[-1]
    assert float(printed.split()[0]) > 0.6 and "illegal_action" not in printed, printed
    outcomes = run_program(documented("windtunnel.pettingzoo import env"), tmp_path, site).split()
    assert outcomes[0] == "0" and outcomes[1] in {"win", "loss", "draw"}
