"""Trainings in two processes: PyTorch, TensorFlow and JAX really train, and what they make balances a pole next.

The programs and the pipeline are those of docs/trainings.md, and run through a platform on this machine.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.document_commands import ROOT, blocks
from tests.system.platform_process import PlatformProcess
from tests.system.test_equal_results import prepared
from windtunnel import Client

PAGE = (ROOT / "docs/trainings.md").read_text()
#: Seconds for a pipeline, which may install PyTorch.
LIMIT = 1500.0


@dataclass(frozen=True)
class Framework:
    """A framework. ``text``: a line that its program alone has; ``suffix``: of its files; ``format``: of its models;
    ``has_environment``: whether programs have its packages without declaring them.
    """

    text: str
    suffix: str
    format: str
    has_environment: bool = True


FRAMEWORKS = {
    "torch": Framework("import torch\n", "pt", "torchscript", has_environment=False),
    "tensorflow": Framework("import tensorflow as tf\n", "zip", "savedmodel"),
    "jax": Framework("import jax\n", "jax", "jax"),
}


@pytest.fixture(scope="module")
def training_platform(
    prepared_environments: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlatformProcess]:
    """A platform whose packages, gigabytes of them, end with these tests."""
    home = tmp_path_factory.mktemp("trainings")
    process = PlatformProcess(home)
    try:
        yield process.start()
    finally:
        process.stop()
        shutil.rmtree(home)


def documented(folder: Path, name: str) -> None:
    """Write the page's program of a framework, and its pipeline for it."""
    framework = FRAMEWORKS[name]
    page = list(blocks(PAGE))
    [program] = [block.text for block in page if block.language == "python" and framework.text in block.text]
    [steps] = [block.text for block in page if block.language == "json"]
    (folder / "train.py").write_text(program)
    steps = steps.replace('"torch"', f'"{name}"').replace('.pt"', f'.{framework.suffix}"')
    (folder / "steps.json").write_text(steps)


@pytest.mark.timeout(LIMIT + 300)
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_two_processes_train_a_model_that_is_evaluated_next_and_is_better_than_untrained(
    name: str, training_platform: PlatformProcess, tmp_path: Path
) -> None:
    platform, framework = training_platform, FRAMEWORKS[name]
    if framework.has_environment:
        prepared(framework.format)
    documented(tmp_path, name)
    own = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "WINDTUNNEL_URL": platform.url}
    outcome = subprocess.run(
        [sys.executable, "-m", "windtunnel", "pipeline", "steps.json"],
        env={**os.environ, **own},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    with Client(platform.url) as client:
        [pipeline] = [item for item in client.pipelines.list(limit=1)]
        ended = client.pipelines.get(pipeline.id)

    trained = ended.step("train").simulation_id or ""
    [result] = platform.results(trained)
    metrics = result["metrics"]
    assert result["status"] == "ok", result
    assert metrics["processes"] == 2 and metrics["spread"] == 0.0, "the weights differ between the processes"
    assert metrics["last_loss"] < 0.2 * metrics["first_loss"]
    assert len(result["timing"]["ranks"]) == 2
    assert all(rank["computing"] > 0.5 for rank in result["timing"]["ranks"])
    assert ("communication" in platform.get(trained)["provenance"]) == framework.has_environment

    made = ended.step("train").outputs["policy"]
    evaluated = platform.get(ended.step("evaluate").simulation_id or "")
    assert (evaluated["model"]["digest"], evaluated["model"]["format"]) == (made.digest, framework.format)
    balanced = platform.results(evaluated["id"])
    assert [each["status"] for each in balanced] == ["ok"] * 10
    assert all(each["metrics"]["length"] == 500 for each in balanced), balanced

    comparison = platform.http.get(f"/v1/comparisons/{ended.step('compare').comparison_id}").json()
    assert comparison["models"][0]["verdict"]["decision"] == "better", comparison


def test_the_page_has_a_program_of_each_framework(tmp_path: Path) -> None:
    for name in FRAMEWORKS:
        documented(tmp_path, name)
        steps = json.loads((tmp_path / "steps.json").read_text())["steps"]
        assert steps[0]["submission"]["gang"]["communication"] == name
