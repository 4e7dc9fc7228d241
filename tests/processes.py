"""Processes that were told something by their environment, and so did all that they started."""

import contextlib
import os
import signal
from pathlib import Path


def told(name: str, value: object) -> list[int]:
    """Return the processes whose environment began with this variable."""
    mark = f"{name}={value}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is nothing of ours
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def sweep(name: str, value: object) -> list[int]:
    """End them all at once; return those that were there."""
    found = told(name, value)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found
