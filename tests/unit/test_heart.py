"""A role's heart: a file that is touched, and how old it may be."""

import subprocess
import sys
from pathlib import Path

from workers.liveness import beat, beats


def test_a_role_that_has_not_begun_is_judged_by_its_process_alone(tmp_path: Path) -> None:
    assert beats(tmp_path / "none", 60, now=0)


def test_a_heart_that_has_stood_still_for_too_long_is_told(tmp_path: Path) -> None:
    heart = tmp_path / "dispatch.beat"
    beat(heart)
    at = heart.stat().st_mtime
    assert beats(heart, 60, at + 59) and not beats(heart, 60, at + 61)


def test_a_probe_tells_by_its_exit_status(tmp_path: Path) -> None:
    heart = tmp_path / "dispatch.beat"
    beat(heart)
    for seconds, status in (("3600", 0), ("-1", 1)):
        assert subprocess.run([sys.executable, "-m", "workers.liveness", heart, seconds]).returncode == status
