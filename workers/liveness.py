"""Liveness file for roles without HTTP: each loop iteration touches a file, and an exec probe checks its age.

`python -m workers.liveness FILE SECONDS` exits with 0 if the file was touched that recently, or does not exist: before
the first iteration, only the process itself counts.
"""

import sys
import time
from pathlib import Path

from common.ages import is_overdue


def record_iteration(path: Path) -> None:
    """Record an iteration of the loop."""
    path.touch()


def is_live(path: Path, seconds: float, now: float) -> bool:
    """Return whether the loop iterated within the last ``seconds``, or has not started; ``now`` as of `time.time`."""
    try:
        return not is_overdue(path.stat().st_mtime, seconds, now)
    except FileNotFoundError:
        return True


if __name__ == "__main__":
    sys.exit(0 if is_live(Path(sys.argv[1]), float(sys.argv[2]), time.time()) else 1)
