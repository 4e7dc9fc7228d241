"""Drives of trusted models, which the compiled code of car_street calls: equal to those with a model server."""

import json
from typing import Any

import pytest

from runtimes.compiled_code import find_compiler
from tests.contracts.harness_processes import evaluator_pair, play_of, worker_spec
from tests.contracts.test_evaluator import without_timing
from tests.simulators.car_street import BASELINES, site
from tests.simulators.test_gymnasium import best_level

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="the compiled loop needs a C++ compiler")

TASKS = 24
#: What a model does in the sixth step of a scenario, which it chooses by the seed.
FAULTY = """
import sys, numpy as np
KINDS = [
    lambda: [1.0, 0.0],
    lambda: [float("nan"), 0.0],
    lambda: np.array([0.0, -np.inf], np.float32),
    lambda: None,
    lambda: [1.0, 0.0, 0.0],
    lambda: 1 / 0,
    lambda: sys.exit(0),
    lambda: np.array([3e38, 3e38], np.float32),
]
class Model:
    def reset(self, info):
        self.steps, self.special = 0, KINDS[info["seed"] % len(KINDS)]
    def act(self, observation):
        self.steps += 1
        noise = np.random.random() - 0.5
        return self.special() if self.steps == 6 else [float(np.tanh(observation[0])) + noise, 0.0]
"""
LATE = """
import time
class Model:
    def act(self, observation):
        time.sleep(1.0 if observation[0] > 3.0 else 0.0)
        return [1.0, 0.0]
"""


def driven(model: bytes, *, trusted: bool, tasks: int = TASKS, **changes: Any) -> tuple[list[bytes], Any]:
    """Return the results without timing, and the traces."""
    isolation = "scenario"
    play = play_of("car_street", isolation=isolation, record="all", trusted=trusted, worlds=1, **changes)
    spec = worker_spec(
        "car_street", evaluator_site=str(site()), isolation=isolation, sandbox=best_level(), trusted=trusted
    )
    with evaluator_pair(spec, model, play) as pair:
        return without_timing(pair.run_lines(0, tasks)), pair.artifacts


def statuses(results: list[bytes]) -> set[str]:
    return {json.loads(result.rstrip(b",") + b"}")["status"] for result in results}


def test_whatever_a_trusted_model_answers_has_the_result_of_an_isolated_one() -> None:
    runs = {trusted: driven(FAULTY.encode(), trusted=trusted) for trusted in (False, True)}
    assert runs[True] == runs[False]
    assert statuses(runs[True][0]) == {"ok", "invalid", "failed"}


def test_an_answer_of_a_trusted_model_that_is_late_is_the_fault_of_its_scenario() -> None:
    runs = {trusted: driven(LATE.encode(), trusted=trusted, tasks=2, deadline=0.5)[0] for trusted in (False, True)}
    assert runs[True] == runs[False] and statuses(runs[True]) == {"timed_out"}


def test_long_drives_of_a_trusted_model_are_those_of_an_isolated_one() -> None:
    idm = (BASELINES / "idm.py").read_bytes()
    assert driven(idm, trusted=True, tasks=6) == driven(idm, trusted=False, tasks=6)
