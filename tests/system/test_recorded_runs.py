"""What runs the tests hears a test that failed once more, alone; what fails again has failed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pathlib
import pytest

def test_passes():
    pass

def test_fails_the_first_time():
    seen = pathlib.Path(__file__).with_name("seen")
    if not seen.exists():
        seen.write_text("")
        raise AssertionError("not yet")

@pytest.mark.parametrize("number", range({wrong}))
def test_fails(number):
    raise AssertionError("never")
"""


def heard(folder: Path, *arguments: str, wrong: int = 0) -> tuple[int, str]:
    """Run tests of which so many fail whenever they are run; return the status and what was printed."""
    (folder / "test_it.py").write_text(TESTS.format(wrong=wrong))
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "scripts.tests", str(folder / "test_it.py"), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    return done.returncode, done.stdout


@pytest.mark.parametrize("several", [(), ("-n", "2", "--dist", "loadfile")])
def test_one_that_passes_alone_has_passed_and_is_named(tmp_path: Path, several: tuple[str, ...]) -> None:
    status, said = heard(tmp_path, *several)
    assert status == 0
    assert "failed, and passed alone: test_it.py::test_fails_the_first_time" in said


def test_one_that_fails_alone_too_has_failed(tmp_path: Path) -> None:
    status, said = heard(tmp_path, wrong=1)
    assert status == 1
    assert "failed twice: test_it.py::test_fails[0]" in said
    assert "failed, and passed alone: test_it.py::test_fails_the_first_time" in said


def test_many_at_once_are_no_accident_and_nothing_to_run_is_told(tmp_path: Path) -> None:
    assert (found := heard(tmp_path, wrong=6))[0] == 1 and "once more" not in found[1]
    assert heard(tmp_path, "-k", "nothing_of_this_name")[0] == 5
