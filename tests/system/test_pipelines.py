"""Pipelines on a real platform: a program trains, what it made is evaluated and compared, and kills lose no step."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import StartPlatform
from tests.system.platform_process import PlatformProcess
from tests.waiting import until
from windtunnel import Client

FINAL = ("succeeded", "failed", "cancelled")
TRAINING = """
import json, os, pathlib
task = json.loads(pathlib.Path(os.environ["WINDTUNNEL_SCENARIO"]).read_text())
policy = f"class Model:\\n    def act(self, observation):\\n        return [{task['params']['push']}, 0]\\n"
pathlib.Path(os.environ["WINDTUNNEL_OUTPUT"], "policy.py").write_text(policy)
print('{"trained": true}')
"""


def steps(push: float) -> list[dict[str, Any]]:
    """Steps that train a model which always accelerates by ``push`` m/s2, evaluate it, and compare it with another."""
    train = {
        "dataset": "program",
        "model": "train.py",
        "params": {"push": push},
        "scenarios": "0",
        "gang": {"size": 1, "command": ["python", "model.py"]},
        "outputs": {"policy": {"file": "policy.py", "as": "model", "name": "pushing"}},
    }
    trained = {"from": "train", "output": "model"}
    return [
        {"name": "train", "submission": train},
        {"name": "evaluate", "submission": {"dataset": "car_street", "model": trained, "scenarios": "0-1"}},
        {
            "name": "compare",
            "after": ["evaluate"],
            "comparison": {"dataset": "car_street", "models": [trained, "idm"], "scenarios": "0-3"},
        },
    ]


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def windtunnel(platform: PlatformProcess, tmp_path: Path) -> Run:
    """A function that runs the command line, in a folder and with folders of the user's own."""
    own = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "WINDTUNNEL_URL": platform.url}

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "windtunnel", *arguments]
        return subprocess.run(
            command, env={**os.environ, **own}, cwd=tmp_path, capture_output=True, text=True, timeout=120
        )

    return run


@pytest.fixture
def client(platform: PlatformProcess) -> Iterator[Client]:
    with Client(platform.url) as client:
        yield client


def test_what_a_step_trains_is_evaluated_and_compared_from_the_command_line(
    windtunnel: Run, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "steps.json").write_text(json.dumps({"name": "pushing", "steps": steps(0.5)}))
    outcome = windtunnel("pipeline", "steps.json")
    assert outcome.returncode == 0, outcome.stderr
    assert "pushing: succeeded" in outcome.stdout and "train  running" in outcome.stderr
    [pipeline] = [item for item in client.pipelines.list(limit=1)]
    ended = client.pipelines.get(pipeline.id)
    made = ended.step("train").outputs["policy"].digest
    evaluated = client.simulations.get(ended.step("evaluate").simulation_id or "")
    assert evaluated.model.digest == made
    assert client.comparisons.get(ended.step("compare").comparison_id or "").state == "finished"
    again = windtunnel("pipeline", "retry", pipeline.id, "--from", "train")
    assert again.returncode == 0, again.stderr
    states = {step.name: step.state for step in client.pipelines.get(pipeline.id).steps}
    assert states == {"train": "succeeded", "evaluate": "skipped", "compare": "skipped"}
    assert pipeline.id in windtunnel("pipeline").stdout
    assert windtunnel("pipeline", "delete", pipeline.id).returncode == 0
    assert windtunnel("pipeline", "show", pipeline.id).returncode == 2


def test_a_script_of_a_step_with_a_gang_keeps_the_name_that_its_command_has(windtunnel: Run, tmp_path: Path) -> None:
    (tmp_path / "solve.sh").write_text('#!/bin/sh\necho "{\\"solved\\": 1}"\n')
    gang = {"size": 1, "command": ["sh", "solve.sh"]}
    solve = {"dataset": "program", "model": "solve.sh", "scenarios": "0", "gang": gang}
    for submission in (solve, {**solve, "format": "gang_program"}):
        (tmp_path / "steps.json").write_text(json.dumps({"steps": [{"name": "solve", "submission": submission}]}))
        outcome = windtunnel("pipeline", "steps.json")
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_a_pipeline_that_fails_ends_the_command_with_1_and_says_which_step(windtunnel: Run, tmp_path: Path) -> None:
    broken = steps(0.5)
    broken[0]["submission"]["params"] = {"pull": 1}
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "steps.json").write_text(json.dumps({"steps": broken}))
    outcome = windtunnel("pipeline", "steps.json")
    assert outcome.returncode == 1, outcome.stderr
    assert "step 'train' has failed" in outcome.stdout and "KeyError" in outcome.stdout
    assert "evaluate  not_run" in outcome.stderr and "`windtunnel pipeline retry " in outcome.stderr


def test_what_the_command_line_does_not_know_is_refused_and_a_folder_is_not_taken_for_a_name(
    windtunnel: Run, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "idm").mkdir()
    (tmp_path / "idm" / "model.py").write_text("raise SystemExit('not this one')\n")
    step = {"name": "a", "submission": {"model": "idm", "dataset": "car_street", "scenarios": "0"}}
    (tmp_path / "steps.json").write_text(json.dumps({"steps": [step]}))
    assert windtunnel("pipeline", "steps.json").returncode == 0
    assert windtunnel("pipeline", "show", "last").stdout.count("succeeded") >= 1
    (tmp_path / "steps.json").write_text(json.dumps({"steps": [step], "fesh": True}))
    outcome = windtunnel("pipeline", "steps.json")
    assert outcome.returncode != 0 and "fesh" in outcome.stderr
    listed = {**step, "submission": {**step["submission"], "scenarios": range(2)}}  # type: ignore[dict-item]
    pipeline = client.pipelines.wait(client.pipelines.create([listed]).id)
    assert client.simulations.get(pipeline.step("a").simulation_id or "").tasks.total == 2


def test_kills_of_the_dispatcher_and_of_jobs_submit_no_step_twice_and_lose_none(start_platform: StartPlatform) -> None:
    platform = start_platform()
    rng = random.Random(46)
    chain: list[dict[str, Any]] = [
        {
            "name": f"s{number}",
            "submission": {"dataset": "noop", "runtime": "python", "scenarios": "0-3", "seed": number},
            "after": [f"s{number - 1}"] if number % 4 else [],
        }
        for number in range(12)
    ]
    created = platform.http.post("/v1/pipelines", json={"steps": chain})
    assert created.status_code == 201, created.text
    address = f"/v1/pipelines/{created.json()['id']}"
    for role in ("jobs", "dispatch", "api", "jobs", "dispatch", "jobs"):
        platform.kill(role, rng)

    def pipeline() -> Any:
        return platform.get_until_answered(address).json()

    until(lambda: pipeline()["state"] in FINAL, 120.0, lambda: f"it does not end: {pipeline()}")
    ended = pipeline()
    assert ended["state"] == "succeeded", ended["reason"]
    label = f"/v1/simulations?limit=200&label=pipeline={ended['id']}"
    simulations = platform.get_until_answered(label).json()["items"]
    submitted = sorted(simulation["labels"]["step"] for simulation in simulations)
    assert submitted == sorted(step["name"] for step in chain)
    assert {simulation["id"] for simulation in simulations} == {step["simulation_id"] for step in ended["steps"]}
