"""A scenario in which the kernel kills the model for its memory says so, and the others are run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runtimes.harness.sandbox import level
from tests.contracts.harness_processes import play_of, worker_spec
from tests.control_groups import join, limited_group
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi
from tests.system.test_standalone_runner import ROOT, packed

#: Memory of the launch: runner, evaluator and model server need some 150 MB of it.
LIMIT = 384 << 20
#: A model that takes more than that, in small pieces, where the first number of the observation is large.
MODEL = b"""
import numpy

class Model:
    def act(self, observation):
        if observation[0] > 0.75:
            kept = [numpy.ones(1 << 20) for _ in range(128)]
        return observation
"""


@pytest.mark.parametrize("isolation", ["scenario", "launch"])
def test_a_scenario_whose_model_the_kernel_killed_for_memory_says_so_and_the_others_are_run(
    tmp_path: Path, isolation: str
) -> None:
    # A group that is full is slow: the model must not be late before it is killed.
    play = play_of("noop", select={"range": [0, 12]}, isolation=isolation, deadline=120.0)
    api = RunnerApi(tmp_path, total=12, play=play, model=MODEL, packed=packed())
    (tmp_path / "token").write_text(TOKEN)
    spec = worker_spec(dataset="noop", sandbox=level().number, isolation=isolation).describe() | {"dataset": ""}
    launch = {"id": LAUNCH, "url": api.url, "token_file": str(tmp_path / "token"), "workers": 1, "worker_spec": spec}
    (tmp_path / "launch.json").write_text(json.dumps(launch | {"files": str(tmp_path / "files")}))
    command = [sys.executable, "-m", "workers.standalone_runner", "--launch", str(tmp_path / "launch.json")]
    with limited_group(LIMIT) as group:
        runner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: join(group))
        try:
            api.settle_until_exit(runner)
        finally:
            runner.kill()
            runner.communicate()
            api.close()
    results = api.results()
    greedy = {result["task"] for result in results if result["scenario"]["seed"] % 65536 / 65536 > 0.75}
    assert 0 < len(greedy) < 6
    assert [result["status"] for result in results] == ["crashed" if task in greedy else "ok" for task in range(12)]
    for task in greedy:
        assert results[task]["error"] == (
            "the model's process ended: killed by SIGKILL: the kernel ended it or a process beside it because their"
            " control group was out of memory: give each worker more memory (`placement.memory`), or load less"
            " (docs/sandbox.md#how-a-process-ends)"
        )
