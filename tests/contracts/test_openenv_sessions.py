"""Session processes of the OpenEnv server: real simulators in the sandbox, compared with the evaluator's results."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.domain.submissions.selection import checked_params
from core.services.uploads.shipped_models import shipped
from datasets.catalogue import datasets
from local_play.scenario_choice import Chosen
from local_play.served_world import ServedWorld
from local_play.session_process import ScenarioFailed, SessionEnded, SessionProcess, StepRefused
from runtimes import catalogue, environments
from runtimes.harness import sandbox
from runtimes.harness.session.session_messages import Observed
from tests.cached import ENVIRONMENTS
from tests.contracts.harness_processes import HARNESS, PYTHON, SITE, evaluator_pair, play_of, worker_spec
from tests.waiting import until

Policy = Callable[[list[float]], list[float]]


@cache
def level() -> int:
    return sandbox.level().number


@cache
def site(dataset: str) -> str:
    simulator = datasets()[dataset].simulator
    if simulator == "noop":
        return SITE
    return str(environments.prepare(catalogue.simulators()[simulator], ENVIRONMENTS, lambda message, fraction: None))


def world(dataset: str, **params: Any) -> ServedWorld:
    built_in = datasets()[dataset]
    return ServedWorld(
        digest=built_in.digest,
        folder=str(built_in.folder),
        site=site(dataset),
        total=built_in.tasks or built_in.definition["max_tasks"],
        python=PYTHON,
        harness=str(HARNESS),
        sandbox=level(),
        params=checked_params(built_in.definition["params"], params, dataset),
    )


@contextmanager
def session(dataset: str, answer_seconds: float = 60.0, **params: Any) -> Iterator[SessionProcess]:
    process = SessionProcess(world(dataset, **params), answer_seconds=answer_seconds)
    try:
        yield process
    finally:
        process.close()


def task(scenario: int, repeat: int = 0, seed: int = 0) -> Chosen:
    return Chosen(scenario=scenario, repeat=repeat, seed=seed)


def play(process: SessionProcess, chosen: Chosen, policy: Policy) -> tuple[Observed, list[float]]:
    """Play a scenario to its end; return the last answer and the rewards."""
    observed, rewards = process.reset(chosen), []
    while observed.metrics is None:
        observed = process.step(policy(observed.values))
        if observed.reward is not None:
            rewards.append(observed.reward)
    return observed, rewards


def policy_of(source: str) -> Policy:
    """Return the policy of a model's source, with observations as a model server passes them."""
    names: dict[str, Any] = {}
    exec(source, names)
    model = names["Model"]()
    return lambda values: np.asarray(model.act(np.array(values, np.float32)), np.float32).reshape(-1).tolist()


DOUBLES = "class Model:\n    def act(self, observation):\n        return observation * 2\n"
IDM = shipped()["idm"].read_text()
CARTPOLE = shipped()["cartpole"].read_text()


@pytest.mark.parametrize(
    ("dataset", "source", "params"),
    [("noop", DOUBLES, {}), ("cartpole", CARTPOLE, {"latency_steps": 2}), ("car_street", IDM, {"lane_guard": True})],
    ids=["noop", "cartpole", "car_street"],
)
def test_a_policy_has_in_a_session_the_metrics_that_a_simulation_reports(
    dataset: str, source: str, params: dict[str, Any]
) -> None:
    checked = checked_params(datasets()[dataset].definition["params"], params, dataset)
    plan = play_of(dataset, seed=7, repeat=2, select={"tasks": [5, 3]}, params=checked, deadline=60.0)
    with evaluator_pair(worker_spec(dataset, evaluator_site=site(dataset)), source, plan) as pair:
        results = pair.run(0, 4)
    assert {result["status"] for result in results} == {"ok"}
    tasks = [task(result["scenario"]["index"], result["scenario"]["repeat"], 7) for result in results]
    with session(dataset, **params) as process:
        backwards = [play(process, chosen, policy_of(source))[0] for chosen in reversed(tasks)]
    assert [observed.metrics for observed in reversed(backwards)] == [result["metrics"] for result in results]
    assert [observed.seed for observed in reversed(backwards)] == [result["scenario"]["seed"] for result in results]


@pytest.mark.parametrize(("dataset", "action"), [("cartpole", [1.0]), ("car_street", [-1.0, 0.0])])
def test_the_rewards_of_a_scenario_sum_up_to_the_datasets_score(dataset: str, action: list[float]) -> None:
    with session(dataset) as process:
        ended, rewards = play(process, task(2), lambda values: action)
    assert ended.metrics is not None
    score = ended.metrics[datasets()[dataset].definition["score"]["metric"]]
    assert sum(rewards) == pytest.approx(score) and len(rewards) > 1


def test_an_action_that_its_type_cannot_hold_is_refused_and_the_scenario_goes_on() -> None:
    with session("noop") as process:
        process.reset(task(0))
        with pytest.raises(StepRefused, match="not applied: the action is not finite"):
            process.step([1e300, 0.0, 0.0, 0.0])
        assert process.step([1.0, 2.0, 3.0, 4.0]).metrics == {"value": 10.0, "echo": pytest.approx(2.0, abs=2.0)}


def test_an_error_of_the_simulator_ends_the_scenario_and_not_the_process() -> None:
    with session("noop", raise_at=3) as process:
        process.reset(task(3))
        with pytest.raises(ScenarioFailed, match="simulator: RuntimeError: the parameter raise_at names this scenario"):
            process.step([0.0] * 4)
        assert play(process, task(4), lambda values: [0.0] * 4)[0].metrics is not None


def test_the_end_of_a_process_is_an_error_with_its_reason() -> None:
    with session("noop", crash_at=1) as process:
        process.reset(task(1))
        with pytest.raises(SessionEnded, match="it exited with code 1"):
            process.step([0.0] * 4)
        with pytest.raises(SessionEnded):
            process.reset(task(0))


def test_a_simulator_that_hangs_is_killed() -> None:
    with session("noop", answer_seconds=0.5, hang_at=1) as process:
        process.reset(task(1))
        with pytest.raises(SessionEnded, match=r"no answer within 0\.5 s, and was killed"):
            process.step([0.0] * 4)


def test_a_world_whose_simulator_cannot_be_created_says_why(tmp_path: Path) -> None:
    broken = world("noop")
    definition = (Path(broken.folder) / "dataset.json").read_text().replace('"observation"', '"observations"')
    tmp_path.chmod(0o755)
    (tmp_path / "dataset.json").write_text(definition)
    values = {name: getattr(broken, name) for name in broken.__dataclass_fields__}
    with pytest.raises(SessionEnded, match="it cannot be created: simulator: KeyError: 'observation'"):
        SessionProcess(ServedWorld(**values | {"folder": str(tmp_path)}))


def test_four_sessions_at_once_have_the_results_of_one_after_the_other() -> None:
    def alone(scenario: int) -> Any:
        with session("car_street") as process:
            return play(process, task(scenario), policy_of(IDM))[0].metrics

    with session("car_street") as process:
        expected = [play(process, task(scenario), policy_of(IDM))[0].metrics for scenario in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(alone, range(4))) == expected


def test_a_session_ends_with_the_process_that_started_it() -> None:
    program = (
        "import os, sys; from local_play.served_world import ServedWorld as World; "
        "from local_play.session_process import SessionProcess; "
        "session = SessionProcess(World.of(sys.argv[1])); print(session.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    parent = subprocess.run(
        [sys.executable, "-c", program, world("noop").describe()], stdout=subprocess.PIPE, text=True
    )
    assert parent.returncode == -signal.SIGKILL
    until(lambda: not Path(f"/proc/{int(parent.stdout)}").exists(), message="a session outlives its parent")
