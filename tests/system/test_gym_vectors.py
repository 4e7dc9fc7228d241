"""Vectors of Gymnasium's: worlds that one exchange steps play what each would play by itself."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import windtunnel.gym
from tests.system.platform_process import PlatformProcess
from tests.system.test_openenv_server import POLICIES
from tests.waiting import until
from windtunnel import WindtunnelError, step_exchange
from windtunnel.gym_vector import DatasetVectorEnv
from windtunnel.sessions import Refused, ScenarioLost

pytestmark = pytest.mark.usefixtures("home")
Make = Callable[..., Any]
#: What became of a step: the observation's bytes, the reward, and whether the scenario was terminated or truncated.
Step = tuple[bytes, float, bool, bool]
#: The steps of each scenario and repetition.
Trajectories = dict[tuple[int, int], list[Step]]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Any] = []

    def make_one(name: str, worlds: int, **options: Any) -> Any:
        made.append(gymnasium.make_vec(f"windtunnel/{name}", num_envs=worlds, **options))
        return made[-1]

    yield make_one
    for environment in made:
        environment.close()


def actions_of(scenario: int, repeat: int) -> Any:
    """Return the actions of a scenario, which depend on nothing else."""
    return np.random.default_rng([scenario, repeat]).integers(2, size=501)


def trajectories(vector: Any, wanted: int) -> Trajectories:
    """Play until so many scenarios have ended; return the steps of those."""
    observations, infos = vector.reset()
    playing = list(zip(infos["scenario"].tolist(), infos["repeat"].tolist(), strict=True))
    steps: Trajectories = {
        key: [(observations[world].tobytes(), 0.0, False, False)] for world, key in enumerate(playing)
    }
    ended: Trajectories = {}
    while len(ended) < wanted:
        actions = np.array([actions_of(*key)[len(steps[key]) - 1] for key in playing])
        before = list(playing)
        observations, rewards, terminated, truncated, infos = vector.step(actions)
        for world, key in enumerate(before):
            if key in ended:  # this step has started the next one
                key = playing[world] = (int(infos["scenario"][world]), int(infos["repeat"][world]))
                steps[key] = []
            steps[key].append(
                (observations[world].tobytes(), rewards.item(world), bool(terminated[world]), bool(truncated[world]))
            )
            if terminated[world] or truncated[world]:
                ended[key] = steps[key]
    return ended


def plain_trajectory(scenario: int, repeat: int, seed: int) -> list[Step]:
    environment = gymnasium.make("CartPole-v1")
    observation, _ = environment.reset(seed=seed)
    steps = [(observation.tobytes(), 0.0, False, False)]
    for action in actions_of(scenario, repeat):
        observation, reward, terminated, truncated, _ = environment.step(action)
        steps.append((observation.tobytes(), float(reward), terminated, truncated))
        if terminated or truncated:
            return steps
    raise AssertionError("it has no end")


def test_a_world_of_a_vector_plays_what_a_single_and_the_plain_environment_play(make: Make) -> None:
    vectors = {worlds: make("cartpole", worlds, seed=4) for worlds in (1, 3, 16)}
    played = {worlds: trajectories(vector, 24) for worlds, vector in vectors.items()}
    single = gymnasium.make("windtunnel/cartpole", seed=4)
    for scenario in range(8):
        observation, information = single.reset()
        assert (information["scenario"], information["repeat"]) == (scenario, 0)
        expected = plain_trajectory(scenario, 0, information["scenario_seed"])
        steps = [(observation.tobytes(), 0.0, False, False)]
        for action in actions_of(scenario, 0)[: len(expected) - 1]:
            observation, reward, terminated, truncated, _ = single.step(action)
            steps.append((observation.tobytes(), reward, terminated, truncated))
        assert steps == expected
        assert all(scenarios[scenario, 0] == expected for scenarios in played.values() if (scenario, 0) in scenarios)
    single.close()
    assert len(played[1].keys() & played[3].keys() & played[16].keys()) > 8


def test_worlds_are_dealt_the_scenarios_in_turns_however_long_they_last(make: Make) -> None:
    vector = make("cartpole", 3, scenarios=[5, 7, 9, 11])
    for seed in (None, 1):
        vector.reset(seed=seed)
        dealt: list[list[tuple[int, int]]] = [[], [], []]
        for resets in range(20):
            mask = np.arange(3) == resets % 3 if resets else np.ones(3, np.bool_)
            if resets % 5 == 4:
                mask |= np.arange(3) == 0  # the first world is faster
            _, infos = vector.reset(options={"reset_mask": mask})
            for world in np.flatnonzero(mask):
                dealt[world].append((int(infos["scenario"][world]), int(infos["repeat"][world])))
            assert infos["_scenario"].tolist() == mask.tolist()
        single = gymnasium.make("windtunnel/cartpole", scenarios=[5, 7, 9, 11])
        abouts = [single.reset(seed=seed if number == 0 else None)[1] for number in range(60)]
        single.close()
        order = [(about["scenario"], about["repeat"]) for about in abouts]
        for world in range(3):
            assert dealt[world] == order[world::3][1 : len(dealt[world]) + 1]
    assert vector.reset(seed=1)[1]["scenario"].tolist() == [scenario for scenario, _ in order[:3]]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_vector_is_reset_and_informed_as_those_of_gymnasium(make: Make, mode: AutoresetMode) -> None:
    ours = make("cartpole", 3, scenarios="0-8", autoreset_mode=mode)
    dealt = [
        lambda world=world: windtunnel.gym.DatasetEnv("cartpole", scenarios=[world, world + 3, world + 6])
        for world in range(3)
    ]
    theirs = SyncVectorEnv(dealt, autoreset_mode=mode)
    try:
        assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"] == mode
        for name in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
            assert getattr(ours, name) == getattr(theirs, name)
        equal(ours.reset(), theirs.reset())
        random = np.random.default_rng(1)
        for _ in range(150):
            actions = random.integers(2, size=3)
            equal(ours.step(actions), theirs.step(actions))
        equal(ours.reset(), theirs.reset())
    finally:
        theirs.close()


def equal(ours: Any, theirs: Any) -> None:
    """Assert that two values are equal in their types, too, as far as Gymnasium says any."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            equal(ours[key], value)
    elif isinstance(theirs, tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            equal(one, other)
    elif isinstance(theirs, np.ndarray):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        for one, other in zip(ours.tolist(), theirs.tolist(), strict=True):
            assert np.array_equal(one, other) if isinstance(other, np.ndarray) else one == other
    else:
        assert ours == theirs


def test_a_vector_that_is_not_reset_by_itself_waits_for_its_trainer(make: Make) -> None:
    vector = make("cartpole", 2, autoreset_mode=AutoresetMode.DISABLED)
    vector.reset()
    over = np.zeros(2, np.bool_)
    while not over.any():
        over = vector.step(np.array([1, 0]))[2]
    if not over.all():
        with pytest.raises(Refused, match="No scenario is under way: reset first"):
            vector.step(np.array([1, 0]))
    observations = vector.reset(options={"reset_mask": over})[0]
    assert np.abs(observations[over]).max() <= 0.05
    assert vector.step(np.array([1, 0]))[1].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("worlds", [1, 3])
def test_the_policy_trained_on_a_vector_is_the_policy_measured(
    platform: PlatformProcess, make: Make, worlds: int
) -> None:
    scenarios = [3, 17, 29, 31, 44]
    params = {"latency_steps": 1}
    measured = platform.run(
        model=POLICIES["cartpole"].encode(), dataset="cartpole", seed=4, scenarios={"tasks": scenarios}, params=params
    )
    expected = {result["scenario"]["index"]: result for result in platform.results(measured["id"])}
    names: dict[str, Any] = {}
    exec(POLICIES["cartpole"], names)
    model = names["Model"]()
    vector = make("cartpole", worlds, seed=4, scenarios=scenarios, params=params)
    observations, _ = vector.reset()
    played: dict[int, tuple[dict[str, Any], int, bool]] = {}
    while len(played) < len(scenarios):
        actions = np.array([np.asarray(model.act(row), np.float64).item() for row in observations])
        observations, _, _, truncated, infos = vector.step(actions)
        for world in np.flatnonzero(infos.get("_metrics", [])):
            metrics = {name: infos["metrics"][name][world] for name in infos["metrics"] if not name.startswith("_")}
            if infos["repeat"][world] == 0:
                about = metrics, int(infos["scenario_seed"][world]), bool(truncated[world])
                played[int(infos["scenario"][world])] = about
    for scenario, (metrics, seed, cut_off) in played.items():
        result = expected[scenario]
        assert (metrics, seed) == (result["metrics"], result["scenario"]["seed"])
        assert cut_off == (result["metrics"]["outcome"] == "balanced")


def innermost(pid: int) -> int:
    """Return the process that a process waits for, and so on."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return innermost(int(children[0])) if children else pid


def test_a_simulator_that_is_killed_is_a_clear_error_and_a_reset_starts_another(make: Make) -> None:
    vector = make("cartpole", 3)
    first, _ = vector.reset(options={"scenario": [1, 2, 3]})
    vector.step(np.ones(3, np.int64))
    os.kill(innermost(vector._session.pids[0]), signal.SIGKILL)
    with pytest.raises(ScenarioLost, match=r"has ended: killed by SIGKILL\. Reset starts another one"):
        while True:
            vector.step(np.ones(3, np.int64))
    with pytest.raises(Refused, match="No scenario is under way: reset first"):
        vector.step(np.ones(3, np.int64))
    again, infos = vector.reset(options={"scenario": [1, 2, 3], "repeat": 0})
    assert np.array_equal(first, again) and infos["scenario"].tolist() == [1, 2, 3]
    assert vector.step(np.ones(3, np.int64))[1].tolist() == [1.0, 1.0, 1.0]


def test_an_error_of_one_simulator_is_told_and_the_next_reset_goes_on(make: Make) -> None:
    vector = make("noop", 3, params={"raise_at": 1})
    vector.reset()
    with pytest.raises(ScenarioLost, match=r"failed, .*: the parameter raise_at names this scenario\. Reset goes on"):
        vector.step(np.zeros((3, 4), np.float32))
    vector.reset()
    assert vector.step(np.zeros((3, 4), np.float32))[2].all()


def test_a_simulator_that_hangs_is_ended_at_a_deadline(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    vector = make("noop", 2, params={"hang_at": 1})
    vector.reset()
    monkeypatch.setattr(step_exchange, "ANSWER_SECONDS", 0.25)
    with pytest.raises(ScenarioLost, match=r"no answer within 0\.5 s, and was killed\. Reset starts another one"):
        vector.step(np.zeros((2, 4), np.float32))


def test_a_wait_that_is_interrupted_leaves_no_answer_to_the_next_order(make: Make) -> None:
    vector = make("cartpole", 2)
    first, _ = vector.reset(options={"scenario": 3})
    exchange = vector._session._processes[0].exchange
    answers = exchange.answers

    def interrupted(orders: int) -> bytearray:
        raise KeyboardInterrupt

    exchange.answers = interrupted
    with pytest.raises(KeyboardInterrupt):
        vector.step(np.zeros(2, np.int64))
    exchange.answers = answers
    with pytest.raises(Refused, match="reset first"):
        vector.step(np.zeros(2, np.int64))
    assert np.array_equal(vector.reset(options={"scenario": 3})[0], first)


def test_a_dictionary_with_a_mask_is_batched_as_gymnasium_does(make: Make) -> None:
    ours = make("pettingzoo_connect_four", 2, scenarios="0-9")
    dealt = [
        lambda world=world: windtunnel.gym.DatasetEnv("pettingzoo_connect_four", scenarios=range(world, 10, 2))
        for world in range(2)
    ]
    theirs = SyncVectorEnv(dealt)
    try:
        assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
        (observations, infos), other = ours.reset(), theirs.reset()
        equal((observations, infos), other)
        for _ in range(40):
            legal = [int(np.flatnonzero(mask)[-1]) for mask in infos["action_mask"]]
            stepped, other = ours.step(np.array(legal)), theirs.step(np.array(legal))
            equal(stepped, other)
            assert ours.observation_space.contains(stepped[0])
            infos = stepped[4]
    finally:
        theirs.close()


def test_simulators_that_cannot_be_side_by_side_have_a_process_each(make: Make) -> None:
    vector = make("car_street", 3, scenarios="0-5")
    first, infos = vector.reset()
    assert len(set(vector._session.pids)) == 3 and infos["scenario"].tolist() == [0, 1, 2]
    stepped, rewards, *_ = vector.step(np.zeros(vector.action_space.shape, np.float32))
    for world in range(3):
        single = gymnasium.make("windtunnel/car_street", scenarios="0-5")
        observation, _ = single.reset(options={"scenario": world})
        assert np.array_equal(observation, first[world])
        observation, reward, *_ = single.step(np.zeros(2, np.float32))
        assert np.array_equal(observation, stepped[world]) and reward == rewards[world]
        single.close()
    others, _ = vector.reset(options={"reset_mask": np.array([False, True, False])})
    assert np.array_equal(others[[0, 2]], stepped[[0, 2]]) and not np.array_equal(others[1], stepped[1])


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        ([0, 1, 2], r"is 2, which is not an element of Discrete\(2\)"),
        ([0.0, np.nan, 1.0], r"entry 0 \(push\) of world 1 is nan, which is not a finite number"),
        ([0, 1], "There are 3 worlds; actions for 2 came"),
    ],
)
def test_an_action_that_is_none_is_refused_and_no_world_is_stepped(make: Make, actions: Any, text: str) -> None:
    vector, same = make("cartpole", 3), make("cartpole", 3)
    vector.reset(), same.reset()
    with pytest.raises(Refused, match=text):
        vector.step(np.array(actions))
    equal(vector.step(np.ones(3, np.int64)), same.step(np.ones(3, np.int64)))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scenario": [1, 2]}, "has 2 numbers for 3 worlds"),
        ({"scenario": [1, 2, 100]}, "from 0 to 99"),
        ({"level": 1}, "no option 'level'"),
    ],
)
def test_a_reset_that_names_nothing_is_refused_and_starts_no_world(make: Make, options: Any, text: str) -> None:
    vector = make("cartpole", 3)
    vector.reset()
    with pytest.raises(WindtunnelError, match=text):
        vector.reset(options=options)
    assert vector.step(np.ones(3, np.int64))[1].tolist() == [1.0, 1.0, 1.0]


def test_metrics_of_several_types_have_an_array_of_objects(make: Make) -> None:
    vector, infos = make("noop", 3), {}
    for world, metrics in enumerate(
        ({"gap": 2, "speed": 1.5}, {"gap": None, "speed": 2.5}, {"gap": 1 << 63, "speed": None})
    ):
        infos = vector._add_info(infos, {"metrics": metrics}, world)
    assert infos["metrics"]["gap"].tolist() == [2, None, 1 << 63]
    assert infos["metrics"]["speed"].tolist() == [1.5, 2.5, None]


def test_a_vector_has_the_wrappers_of_gymnasium(make: Make) -> None:
    vector: VectorEnv = RecordEpisodeStatistics(make("cartpole", 4))
    vector.reset(seed=1)
    lengths: list[int] = []
    while len(lengths) < 8:
        *_, infos = vector.step(vector.action_space.sample())
        lengths += infos["episode"]["l"][infos["_episode"]].tolist() if "episode" in infos else []
        if "metrics" in infos:
            ended = infos["_metrics"]
            assert infos["metrics"]["length"][ended].tolist() == infos["episode"]["l"][ended].tolist()


def test_a_vector_ends_with_its_close_and_with_the_program(make: Make) -> None:
    vector = make("cartpole", 2)
    assert isinstance(vector, DatasetVectorEnv)
    vector.reset()
    pids = [vector._session.pid, *vector._session.pids]
    vector.close()
    vector.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    with pytest.raises(WindtunnelError, match=r"^The vector is closed\. Make it again\.$"):
        vector.reset()
    program = (
        "import gymnasium; v = gymnasium.make_vec('windtunnel.gym:windtunnel/car_street', num_envs=2); v.reset();"
        " print(v._session.pid, *v._session.pids, flush=True)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    for pid in ended.stdout.split():
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), message="a process outlives the program")
