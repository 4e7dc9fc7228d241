"""The examples of shared libraries and programs, in C, Rust and Go: the same results as the baseline in Python."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.contracts.harness_processes import evaluator_pair, play_of
from tests.simulators.test_gymnasium import BASELINES, spec_of

EXAMPLES, PROGRAMS = Path("examples/native"), Path("examples/program")


def results_of(model: bytes, format: str) -> list[dict[str, Any]]:
    play = play_of("cartpole", isolation="scenario")
    with evaluator_pair(spec_of("cartpole", format=format), model, play) as pair:
        return [result | {"timing": None} for result in pair.run(0, 6)]


def check(model: bytes, format: str = "native") -> None:
    baseline = BASELINES["cartpole"].read_bytes()
    results = results_of(model, format)
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


def test_the_example_of_a_program_in_c_has_the_results_of_the_baseline_in_python(tmp_path: Path) -> None:
    output = tmp_path / "policy"
    subprocess.run(["cc", "-O2", "-static", "-o", str(output), str(PROGRAMS / "cartpole.c")], check=True)
    check(output.read_bytes(), "program")


def test_the_example_of_a_program_in_go_has_the_results_of_the_baseline_in_python(tmp_path: Path) -> None:
    output = tmp_path / "policy"
    subprocess.run(["scripts/tools/go", "build", "-o", str(output), str(PROGRAMS / "go/policy.go")], check=True)
    check(output.read_bytes(), "program")
