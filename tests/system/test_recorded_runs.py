"""Recorded test runs: a failed test is rerun alone and recorded if it passes then; an unstable test is not rerun."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scripts.tests import UNSTABLE, WINDOW, Run, dotted, failed_alone_counts, read_history

ROOT = Path(__file__).parents[2]
FLAKY = "test_it.py::test_fails_the_first_time"
TESTS = """
import pathlib
import pytest

def test_passes():
    pass

def test_fails_the_first_time():
    marker = pathlib.Path(__file__).with_name("marker")
    if not marker.exists():
        marker.write_text("")
        raise AssertionError("not yet")

@pytest.fixture
def torn_down():
    yield
    raise AssertionError("in the teardown")

@pytest.mark.parametrize("number", range({wrong}))
def test_fails(number, torn_down):
    raise AssertionError("never")
"""


def entry(*passed_alone: str, suite: str = "test") -> Mapping[str, Any]:
    """Return a line of the history: a run in which these tests failed and then passed alone."""
    run = {"at": "2026-01-01T00:00:00+00:00", "suite": suite, "commit": "abc", "seconds": 1, "load": 0.5, "passed": 3}
    return run | {"failed": [], "passed_alone": list(passed_alone)}


class Suite:
    """A suite: a test that passes, a test that fails the first time, and tests that always fail, also in teardown."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.history = folder / "cache" / "windtunnel" / "test-runs.ndjson"
        (folder / "pytest.ini").write_text("[pytest]\n")

    def write_history(self, *entries: Mapping[str, Any]) -> None:
        self.history.parent.mkdir(parents=True)
        self.history.write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    def run(self, *arguments: str, wrong: int = 0) -> tuple[int, str]:
        """Run the suite as `make test` does; return the exit status and the output."""
        (self.folder / "test_it.py").write_text(TESTS.format(wrong=wrong))
        command = [sys.executable, "-m", "scripts.tests", "test", str(self.folder / "test_it.py"), "-p", "xdist"]
        environment = os.environ | {"XDG_CACHE_HOME": str(self.folder / "cache"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        process = subprocess.run(
            [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200
        )
        return process.returncode, process.stdout


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


@pytest.mark.parametrize("parallel", [(), ("-n", "2", "--dist", "loadgroup")], ids=["serial", "parallel"])
def test_a_test_that_passes_alone_does_not_fail_the_run_and_is_recorded(
    suite: Suite, parallel: tuple[str, ...]
) -> None:
    status, printed = suite.run(*parallel)
    assert status == 0
    assert f"failed, and passed alone (1 of the last {WINDOW} runs): {FLAKY}" in printed
    [run] = read_history(suite.history)
    assert (run.suite, run.passed, run.failed, run.passed_alone) == ("test", 1, (), (FLAKY,))
    assert run.messages == {FLAKY: "AssertionError: not yet"}


def test_a_test_that_fails_alone_too_fails_the_run(suite: Suite) -> None:
    status, _ = suite.run(wrong=1)
    assert status == 1
    [run] = read_history(suite.history)
    assert (run.passed, run.failed, run.passed_alone) == (1, ("test_it.py::test_fails[0]",), (FLAKY,))
    assert run.messages == {"test_it.py::test_fails[0]": "AssertionError: never", FLAKY: "AssertionError: not yet"}


def test_an_unstable_test_is_not_rerun(suite: Suite) -> None:
    suite.write_history(*[entry(FLAKY)] * UNSTABLE)
    status, printed = suite.run()
    assert status == 1
    assert f"fix or remove it: {FLAKY}" in printed and "rerunning" not in printed
    assert read_history(suite.history)[-1].failed == (FLAKY,)


@pytest.mark.parametrize(("arguments", "wrong", "expected"), [((), 6, 1), (("-k", "nothing_of_this_name"), 0, 5)])
def test_many_failures_are_not_rerun_and_an_empty_selection_returns_pytests_exit_status(
    suite: Suite, arguments: tuple[str, ...], wrong: int, expected: int
) -> None:
    status, printed = suite.run(*arguments, wrong=wrong)
    assert status == expected and "rerunning" not in printed


def test_the_dotted_name_of_a_test_keeps_its_parameters_unchanged() -> None:
    assert dotted("tests/unit/test_a.py::TestB::test_c[x/y.py::z]") == "tests.unit.test_a.TestB.test_c[x/y.py::z]"


def test_only_the_last_runs_of_the_same_suite_are_counted() -> None:
    def make(*tests: str, suite: str) -> Run:
        return Run(**entry(suite=suite) | {"failed": (), "passed_alone": tests})

    history = [make("old", suite="test"), *[make("new", suite="test")] * WINDOW, make("other", suite="cluster")]
    assert failed_alone_counts(history, "test") == {"new": WINDOW}


def test_a_failure_of_a_fixture_is_a_failure_of_the_test(suite: Suite) -> None:
    (suite.folder / "conftest.py").write_text("import pytest\n@pytest.fixture(autouse=True)\ndef broken(): 1 / 0\n")
    status, _ = suite.run()
    assert status == 1
    [run] = read_history(suite.history)
    assert len(run.failed) == 2
    assert all("ZeroDivisionError" in message for message in run.messages.values())
