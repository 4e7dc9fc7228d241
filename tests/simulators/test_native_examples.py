"""The examples of shared libraries, in C and Rust: the same results as the baseline of cartpole in Python."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.contracts.harness_processes import evaluator_pair, play_of
from tests.simulators.test_gymnasium import BASELINES, spec_of

EXAMPLES = Path("examples/native")


def results_of(model: bytes, format: str) -> list[dict[str, Any]]:
    play = play_of("cartpole", isolation="scenario")
    with evaluator_pair(spec_of("cartpole", format=format), model, play) as pair:
        return [result | {"timing": None} for result in pair.run(0, 6)]


def check(library: bytes) -> None:
    baseline = (BASELINES / "cartpole/cartpole.py").read_bytes()
    results = results_of(library, "native")
    assert results == results_of(baseline, "python")
    assert {result["metrics"]["outcome"] for result in results} == {"balanced"}


def test_the_example_in_c_has_the_results_of_the_baseline_in_python(tmp_path: Path) -> None:
    output = tmp_path / "policy.so"
    command = ["cc", "-O2", "-shared", "-fPIC", "-I", "runtimes/native", "-o", str(output)]
    subprocess.run([*command, str(EXAMPLES / "cartpole.c")], check=True)
    check(output.read_bytes())


def test_the_example_in_rust_has_the_results_of_the_baseline_in_python(tmp_path: Path) -> None:
    package = shutil.copytree(EXAMPLES / "rust", tmp_path / "rust")  # cargo writes a Cargo.lock
    subprocess.run(["cargo", "build", "--release", "--offline", "--quiet"], cwd=package, check=True)
    check((package / "target/release/libpolicy.so").read_bytes())
