"""Episodes of a Gymnasium environment as peers run them: arguments, the policy, the printed outcome.

Arguments: a JSON file {env, kwargs, package, model, seeds, options}. Printed: episodes/s, and the return of each seed,
so that the benchmark can check that all peers ran the same episodes.
"""

import functools
import importlib
import json
import math
import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Processes or environments at a time: the processors of the benchmark's machine.
WORKERS = len(os.sched_getaffinity(0))
#: Episodes before the clock starts, so that imports and the start of processes are not measured.
WARM_UP = 2 * WORKERS


class Task:
    """What to run: the environment, the policy and one seed per episode."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.seeds: list[int] = document["seeds"]

    @classmethod
    def of_command_line(cls) -> "Task":
        """Read the file that the command line names."""
        return cls(json.loads(Path(sys.argv[1]).read_text()))

    def make(self) -> Any:
        """Return a new environment."""
        import gymnasium

        if self.document["package"]:
            importlib.import_module(self.document["package"])
        environment = gymnasium.make(self.document["env"], disable_env_checker=True, **self.document["kwargs"])
        if self.document["options"]:
            environment.reset(options=self.document["options"])  # highway-env keeps the configuration
        return environment

    def policy(self) -> Callable[[Any], int]:
        """Return the model's discrete action for an observation."""
        act = runpy.run_path(self.document["model"])["Model"]().act
        return lambda observation: math.floor(float(act(observation)[0]) + 0.5)


def play(environment: Any, policy: Callable[[Any], int], seed: int) -> float:
    """Run one episode; return its return."""
    observation, _ = environment.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = environment.step(policy(observation))
        total += float(reward)
        over = terminated or truncated
    return total


@functools.cache
def _of_process(document: str) -> tuple[Any, Callable[[Any], int]]:
    task = Task(json.loads(document))
    return task.make(), task.policy()


def episode_of_process(document: str, seed: int) -> float:
    """Run one episode in a process that keeps its environment; ``document``: the task as JSON."""
    environment, policy = _of_process(document)
    return play(environment, policy, seed)


def timed(run: Callable[[list[int]], list[float]], seeds: list[int], version: str) -> None:
    """Run all episodes after a warm-up; print rate and returns, which `run` returns in the order of the seeds."""
    run(seeds[:WARM_UP])
    began = time.perf_counter()
    returns = run(seeds)
    seconds = time.perf_counter() - began
    if len(returns) != len(seeds):
        raise SystemExit(f"episodes were lost: {len(returns)} of {len(seeds)}")
    print(json.dumps({"rate": len(seeds) / seconds, "seconds": seconds, "returns": returns, "version": version}))
