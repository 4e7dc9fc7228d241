"""Replays: a sandboxed evaluator runs a scenario again from recorded actions."""

import zlib

import numpy as np
import pytest

from datasets.catalogue import datasets
from runtimes import catalogue, environments
from runtimes.harness import sandbox
from runtimes.harness.runner.processes import WorkerSpec
from tests.cached import ENVIRONMENTS
from workers import replay_job
from workers.warm_runners import HARNESS, base_interpreter


def kit(dataset: str) -> WorkerSpec:
    found = datasets()[dataset]
    site = environments.prepare(catalogue.simulators()[found.simulator], ENVIRONMENTS, lambda text, part: None)
    return WorkerSpec(
        python=base_interpreter(),
        harness=str(HARNESS),
        dataset=str(found.folder),
        evaluator_site=str(site),
        model_server_site="",
        format="",
        isolation="launch",
        sandbox=sandbox.level().number,
    )


def play(dataset: str) -> dict[str, object]:
    found = datasets()[dataset]
    tasks = {"seed": 0, "dataset": found.digest, "total_scenarios": found.tasks or 10, "select": {"range": [0, 10]}}
    plan = tasks | {"sweep": {}, "repeat": 1, "params": {}}
    return {"definition": dict(found.definition), "tasks": plan, "params": {}, "deadline": found.definition["deadline"]}


def trace(*steps: tuple[float, ...]) -> bytes:
    return zlib.compress(np.array(steps, "<f4").tobytes())


def test_a_street_is_replayed_and_drawn() -> None:
    seen = replay_job.make(kit("car_street"), play("car_street"), 3, trace(*[(1.0, 0.0)] * 20))
    assert len(seen["frames"]) >= 20
    assert seen["scene"]["lanes"]


def test_two_replays_are_identical() -> None:
    steps = trace(*[(0.5, 0.1)] * 10)
    first, second = (replay_job.make(kit("car_street"), play("car_street"), 5, steps) for _ in range(2))
    assert first == second


def test_a_simulator_without_pictures_says_so() -> None:
    with pytest.raises(replay_job.NothingToShow, match="has no replay"):
        replay_job.make(kit("noop"), play("noop"), 0, trace((0.0,) * 4))


def test_an_invalid_trace_is_refused() -> None:
    with pytest.raises(replay_job.CannotReplay):
        replay_job.make(kit("noop"), play("noop"), 0, b"not a trace")


def test_an_evaluator_that_cannot_start_is_reported_with_its_output() -> None:
    from dataclasses import replace

    with pytest.raises(replay_job.CannotReplay, match="No module named"):
        replay_job.make(replace(kit("noop"), evaluator_site="/nonexistent", sandbox=None), play("noop"), 0, b"")
