"""Liveness file: touched by the loop of a role, its age checked by a probe."""

import subprocess
import sys
from pathlib import Path

from workers.liveness import is_live, record_iteration


def test_a_role_without_a_first_iteration_is_live(tmp_path: Path) -> None:
    assert is_live(tmp_path / "none", 60, now=0)


def test_a_role_is_not_live_once_its_file_is_too_old(tmp_path: Path) -> None:
    file = tmp_path / "dispatch.beat"
    record_iteration(file)
    touched_at = file.stat().st_mtime
    assert is_live(file, 60, touched_at + 59) and not is_live(file, 60, touched_at + 61)


def test_the_probes_exit_status_is_the_liveness(tmp_path: Path) -> None:
    file = tmp_path / "dispatch.beat"
    record_iteration(file)
    for seconds, status in (("3600", 0), ("-1", 1)):
        assert subprocess.run([sys.executable, "-m", "workers.liveness", file, seconds]).returncode == status
