"""A role without HTTP shows that its loop turns: it touches a file, and a probe asks how old that is.

`python -m workers.liveness FILE SECONDS` exits with 0 if the file was touched that recently, or never: before its first
turn a role is judged by its process alone.
"""

import sys
import time
from pathlib import Path


def beat(path: Path) -> None:
    """Say that the loop has turned."""
    path.touch()


def beats(path: Path, seconds: float, now: float) -> bool:
    """Tell whether the loop has turned within so many seconds, or has not begun to."""
    try:
        return now - path.stat().st_mtime <= seconds
    except FileNotFoundError:
        return True


if __name__ == "__main__":
    sys.exit(0 if beats(Path(sys.argv[1]), float(sys.argv[2]), time.time()) else 1)
