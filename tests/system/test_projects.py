"""Projects that `windtunnel new` begins: their tests pass as they are, outside of a checkout, without a server."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.nested_pytest import nested_pytest
from tests.system.platform_process import share_environments
from windtunnel.projects import KINDS


@pytest.fixture(autouse=True)
def folder(prepared_environments: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with a blank in its path."""
    home = tmp_path / "home"
    home.mkdir()
    share_environments(home)
    monkeypatch.setenv("WINDTUNNEL_HOME", str(home))
    projects = tmp_path / "my projects"
    projects.mkdir()
    return projects


def windtunnel(folder: Path, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "windtunnel", *arguments]
    return subprocess.run(command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True)


def pytest_in(folder: Path, arguments: Sequence[str] = (), **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [*nested_pytest(folder.with_name(f"{folder.name} tests")), *arguments]
    return subprocess.run(command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("kind", "dataset"), [("python", "car_street"), ("onnx", "car_street"), ("onnx", "cartpole"), ("c", "car_street")]
)
def test_a_project_passes_its_test_and_fits(folder: Path, kind: str, dataset: str) -> None:
    begun = windtunnel(folder, "new", kind, "my model", "--dataset", dataset)
    assert begun.returncode == 0, begun.stderr
    assert f"cd 'my model' && {KINDS[kind]['install']} && pytest; then" in begun.stderr
    tested = pytest_in(folder / "my model")
    assert tested.returncode == 0, tested.stdout
    checked = windtunnel(folder / "my model", "check", KINDS[kind]["file"], dataset)
    assert checked.returncode == 0 and "fits:" in checked.stdout and "yes" in checked.stdout


def test_a_model_that_does_not_fit_is_exit_code_1_and_what_cannot_be_checked_2(folder: Path) -> None:
    assert windtunnel(folder, "new", "python", "mine").returncode == 0
    project = folder / "mine"
    misfit = windtunnel(project, "check", "model.py", "cartpole", "-o", "json")
    assert misfit.returncode == 1 and '"fits": false' in misfit.stdout
    for arguments in (("model.py", "nothing"), ("nothing.py", "cartpole")):
        unknown = windtunnel(project, "check", *arguments)
        assert unknown.returncode == 2 and "Error: " in unknown.stderr and not unknown.stdout
    again = windtunnel(folder, "new", "python", "mine")
    assert again.returncode == 2 and "not empty" in again.stderr
    nameless = windtunnel(folder, "new", "python", "")
    assert nameless.returncode == 2 and "the name is empty" in nameless.stderr
    assert "Did you mean cartpole?" in windtunnel(folder, "new", "c", "other", "--dataset", "cartpol").stderr


def test_without_a_compiler_the_test_says_what_to_install(folder: Path, tmp_path: Path) -> None:
    assert windtunnel(folder, "new", "c", "mine").returncode == 0
    tested = pytest_in(folder / "mine", PATH=str(tmp_path))
    assert tested.returncode == 1 and "install make and a C compiler" in tested.stdout


def test_a_folder_that_cannot_be_written_is_an_error_of_one_line(folder: Path) -> None:
    refused = windtunnel(folder, "new", "python", "/proc/mine")
    assert refused.returncode == 2 and refused.stderr.startswith("Error: ") and "Traceback" not in refused.stderr
