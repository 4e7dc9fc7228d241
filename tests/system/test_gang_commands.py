"""Coupled programs as a user runs them: a project of MPI by hand and on a platform, executables, folders, mistakes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runtimes import catalogue, environments
from tests.cached import ENVIRONMENTS
from tests.nested_pytest import nested_pytest
from tests.system.platform_process import PlatformProcess

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def windtunnel(platform: PlatformProcess, tmp_path: Path) -> Run:
    """A function that runs the command line to its end, in the user's folder."""

    def run(*arguments: str, folder: str = ".") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "windtunnel", *arguments],
            env={**os.environ, "HOME": str(tmp_path), "WINDTUNNEL_URL": platform.url},
            cwd=tmp_path / folder,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.fixture(scope="module")
def mpi() -> dict[str, str]:
    """The environment variables of a user who has installed MPICH, mpi4py, numpy and pytest."""
    environment = catalogue.communications()["mpi"]
    environments.prepare(environment, ENVIRONMENTS, lambda message, fraction: None)
    site = environments.ready(environment, ENVIRONMENTS)
    return {
        **os.environ,
        "PATH": f"{site}/bin:{os.environ['PATH']}",
        "PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}",
        "LD_LIBRARY_PATH": f"{site}/lib",
    }


def error_of(text: str) -> str:
    """Return the error that the program's last line has, with all its digits."""
    found = re.findall(r'"error": ([0-9.e-]+)', text)
    assert found, text
    return str(found[-1])


def test_a_project_of_mpi_has_the_same_error_by_hand_and_on_a_platform_with_any_number_of_ranks(
    windtunnel: Run, mpi: dict[str, str], tmp_path: Path
) -> None:
    begun = windtunnel("new", "mpi", "my heat")
    assert begun.returncode == 0 and "then windtunnel run heat.py --ranks 2" in begun.stderr, begun.stderr
    project = tmp_path / "my heat"

    errors = set()
    for ranks in ("2", "4"):
        done = windtunnel("run", "heat.py", "--ranks", ranks, folder="my heat")
        assert done.returncode == 0, done.stderr
        assert re.search(rf"^ranks +{ranks}\.000", done.stdout, re.MULTILINE), done.stdout
        assert len(re.findall(r"^ +\d  +[\d.]+ s  +[\d.]+ s", done.stdout, re.MULTILINE)) == int(ranks), done.stdout
        printed = windtunnel("logs", "last").stdout
        assert "step 1010 of 5051" in printed
        errors.add(error_of(printed))
    by_hand = ["mpiexec", "-n", "1", sys.executable, "heat.py"]
    errors.add(error_of(subprocess.run(by_hand, cwd=project, env=mpi, capture_output=True, text=True).stdout))
    assert len(errors) == 1 and 0 < float(errors.pop()) < 1e-4


def test_the_test_of_a_project_of_mpi_passes(windtunnel: Run, mpi: dict[str, str], tmp_path: Path) -> None:
    assert windtunnel("new", "mpi", "heat").returncode == 0
    tested = subprocess.run(
        nested_pytest(tmp_path / "tests"), cwd=tmp_path / "heat", env=mpi, capture_output=True, text=True
    )
    assert tested.returncode == 0, tested.stdout


def test_a_swept_parameter_reaches_the_ranks(windtunnel: Run) -> None:
    assert windtunnel("new", "mpi", "heat").returncode == 0
    words = ("heat.py", "--ranks", "2", "--sweep", "points=10,20", "--param", "time=0.01", "--quiet")
    done = windtunnel("run", *words, folder="heat")
    assert done.returncode == 0, done.stderr
    lines = windtunnel("results", done.stdout.strip(), "-o", "ndjson").stdout.splitlines()
    assert [json.loads(line)["metrics"]["steps"] for line in lines] == [4, 12]


def test_an_executable_and_a_folder_with_one_are_sent_once_and_run(windtunnel: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for file, name in ((tmp_path / "answer", "answer"), (tmp_path / "folder" / "run.sh", "folder")):
        file.write_text("#!/bin/sh\nmkdir out && echo '{\"answer\": 42}' > out/0 && cat out/*\n")
        file.chmod(0o755)
        for _ in range(2):
            done = windtunnel("run", name, "--ranks", "1", "--communication", "none")
            assert done.returncode == 0 and re.search(r"^answer +42\.", done.stdout, re.MULTILINE), done.stderr
        assert "version: 1" in windtunnel("models", "get", name, "-o", "yaml").stdout


def test_what_runs_with_some_words_is_estimated_with_the_same_ones(windtunnel: Run, tmp_path: Path) -> None:
    (tmp_path / "estimated").write_text("#!/bin/sh\necho '{\"answer\": 42}'\n")
    (tmp_path / "beam.case").write_text('{"packages": ["calculix-ccx"], "command": ["ccx"], "ranks": 2}')
    words = ("estimated", "--ranks", "2", "--communication", "none")
    estimates = []
    for _ in range(2):
        done = windtunnel("estimate", *words, "-o", "json")
        assert done.returncode == 0, done.stderr
        estimates.append(json.loads(done.stdout))
        assert windtunnel("run", *words, "--command", "sh model").returncode == 0
    first, second = (each["basis"]["kind"] for each in estimates)
    assert first in ("none", "dataset") and second == "model"  # other programs may have run before
    assert [(each["tasks"], each["resources"]["cpu"]["asked"]) for each in estimates] == [(1, 2.0)] * 2
    described = windtunnel("estimate", "beam.case", "program", "--scenarios", "0", "-o", "json")
    assert json.loads(described.stdout)["workers"] == 2, described.stderr


def test_what_a_rank_printed_before_it_failed_is_in_the_report(windtunnel: Run, tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("#!/bin/sh\necho no such part >&2\nexit $((3 * $WINDTUNNEL_GANG_INDEX))\n")
    done = windtunnel("run", "broken", "--ranks", "2", "--communication", "none")
    assert done.returncode == 1 and "rank 1 exited with status 3" in done.stdout and "no such part" in done.stdout
