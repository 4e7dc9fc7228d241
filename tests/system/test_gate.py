"""`windtunnel gate` as a user's CI runs it: exit codes, reports, and the example of a workflow."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.system.platform_process import ROOT, PlatformProcess

EXAMPLE = ROOT / "examples" / "gate"
CRASHING = "class Model:\n    def act(self, observation):\n        raise RuntimeError('no idea')\n"
Gate = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environ(platform: PlatformProcess, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "WINDTUNNEL_URL": platform.url,
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


@pytest.fixture
def gate(environ: dict[str, str], tmp_path: Path) -> Gate:
    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = ["windtunnel", "gate", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=240)

    return run


def test_a_better_candidate_passes_and_leaves_reports(gate: Gate, tmp_path: Path) -> None:
    reports = ("--junit", "gate.xml", "--html", "report.html", "--markdown", "summary.md")
    finished = gate("cartpole", "--against", "zero", "--dataset", "cartpole", *reports)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "passed  cartpole is better than zero" in finished.stdout
    suite = ElementTree.parse(tmp_path / "gate.xml").find("testsuite")
    assert suite is not None and suite.get("failures") == "0" and int(suite.get("tests", "")) == 2
    assert "cartpole is better than zero" in (tmp_path / "summary.md").read_text()
    page = (tmp_path / "report.html").read_text()
    assert "cartpole" in page and "http-equiv" not in page, "the report itself, not the page that waits for it"


def test_a_worse_candidate_fails(gate: Gate, tmp_path: Path) -> None:
    finished = gate("zero", "--against", "cartpole", "--dataset", "cartpole", "--junit", "gate.xml", "--json")
    assert finished.returncode == 1, finished.stdout + finished.stderr
    document = json.loads(finished.stdout)
    assert document["passed"] is False and document["model"]["verdict"]["decision"] == "worse"
    failure = ElementTree.parse(tmp_path / "gate.xml").find("testsuite/testcase/failure")
    assert failure is not None and failure.get("type") == "refuted"


def test_too_few_scenarios_leave_it_undecided_and_a_wider_margin_does_not(gate: Gate, tmp_path: Path) -> None:
    (tmp_path / "copy.py").write_text((EXAMPLE / "policy.py").read_text() + "\n# other bytes\n")
    shutil.copy(EXAMPLE / "policy.py", tmp_path)
    few = ("copy.py", "--against", "policy.py", "--dataset", "cartpole", "--scenarios", "0-39")
    finished = gate(*few, "--margin", "5", "--junit", "gate.xml")
    assert finished.returncode == 3, finished.stdout + finished.stderr
    assert "would be equivalent at a margin of" in finished.stdout
    failure = ElementTree.parse(tmp_path / "gate.xml").find("testsuite/testcase/failure")
    assert failure is not None and failure.get("type") == "undecided"
    finished = gate(*few, "--margin", "100", "--require", "equivalent", "--no-new-failures")
    assert finished.returncode == 0 and "0 scenarios broke" in finished.stdout, finished.stdout + finished.stderr


def test_a_metric_without_a_range_asks_for_a_margin_and_a_bound(gate: Gate) -> None:
    unranged = ("cartpole", "--against", "zero", "--dataset", "cartpole", "--metric", "clipped_actions")
    finished = gate(*unranged)
    assert finished.returncode == 2 and "`margin`" in finished.stderr and "`bound`" in finished.stderr


def test_a_candidate_that_crashes_fails_although_its_reference_is_as_bad(gate: Gate, tmp_path: Path) -> None:
    (tmp_path / "crashing.py").write_text(CRASHING)
    (tmp_path / "also.py").write_text(f"# the same behaviour in other bytes\n{CRASHING}")
    finished = gate("crashing.py", "--against", "also.py", "--dataset", "cartpole", "--scenarios", "0-15")
    assert finished.returncode == 1, finished.stdout + finished.stderr
    assert "16 of 16 tasks of the candidate are not ok" in finished.stdout and "no idea" in finished.stdout


SAME = ("--against", "cartpole", "--dataset", "cartpole", "--scenarios", "0-9")


def test_the_same_bytes_pass_if_they_play_without_a_fault(gate: Gate, tmp_path: Path) -> None:
    finished = gate("cartpole", *SAME, "--junit", "gate.xml", "--html", "report.html")
    assert finished.returncode == 0 and "same bytes" in finished.stdout, finished.stderr
    assert "report.html is not written: nothing was compared" in finished.stderr
    suite = ElementTree.parse(tmp_path / "gate.xml").find("testsuite")
    assert suite is not None and "10 of 10 tasks are ok" in "".join(suite.itertext())
    (tmp_path / "fails.py").write_text(f"# every task of this one fails\n{CRASHING}")
    finished = gate("fails.py", "--against", "fails.py", "--dataset", "cartpole", "--scenarios", "0-9")
    assert finished.returncode == 1 and "10 of 10 tasks of the candidate are not ok" in finished.stdout


def test_the_same_bytes_are_not_better(gate: Gate) -> None:
    finished = gate("cartpole", *SAME, "--require", "better")
    assert finished.returncode == 1 and "same bytes" in finished.stdout, finished.stderr


def test_a_report_that_cannot_be_written_is_an_error_before_anything_is_played(gate: Gate) -> None:
    finished = gate("zero", "--against", "cartpole", "--dataset", "cartpole", "--junit", "nowhere/gate.xml")
    assert finished.returncode == 2 and "There is no folder nowhere" in finished.stderr, finished.stderr
    assert "/comparisons/" not in finished.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nobody", "--against", "cartpole", "--dataset", "cartpole"), "There is no model 'nobody'"),
        (("cartpole", "--against", "zero", "--dataset", "nowhere"), "There is no dataset 'nowhere'"),
        (("missing/file.py", "--against", "zero", "--dataset", "cartpole"), "There is no file missing/file.py"),
        (("zero", "--against", "zero", "--dataset", "nowhere"), "There is no dataset 'nowhere'"),
    ],
)
def test_what_cannot_be_compared_is_neither_passed_nor_failed(
    gate: Gate, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    finished = gate(*arguments, "--junit", "gate.xml", "--markdown", "summary.md")
    assert finished.returncode == 2 and message in finished.stderr, finished.stderr
    suite = ElementTree.parse(tmp_path / "gate.xml").find("testsuite")
    assert suite is not None and (suite.get("errors"), suite.get("failures")) == ("1", "0")
    assert "The gate could not decide" in (tmp_path / "summary.md").read_text()


def test_the_example_of_a_workflow_works_as_it_stands(gate: Gate, environ: dict[str, str], tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "policy.py", tmp_path)
    shutil.copy(EXAMPLE / "policy.py", tmp_path / "prod.py")
    (tmp_path / "prod.py").write_text((EXAMPLE / "policy.py").read_text().replace("0.5 * turning", "0.0 * turning"))
    upload = ["windtunnel", "models", "upload", "prod.py", "--tag", "gold"]
    subprocess.run(upload, cwd=tmp_path, env=environ, check=True, capture_output=True, timeout=60)
    steps = yaml.safe_load((EXAMPLE / "gate.yml").read_text())["jobs"]["gate"]["steps"]
    commands = [step["run"] for step in steps if "run" in step and not step["run"].startswith("pip ")]
    assert len(commands) == 2
    variables = {**environ, "GITHUB_SHA": "1a2b3c", "GITHUB_STEP_SUMMARY": str(tmp_path / "shown.md")}
    for command in commands:
        finished = subprocess.run(
            ["bash", "-e", "-c", command], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=240
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "policy is better than prod" in (tmp_path / "shown.md").read_text()
