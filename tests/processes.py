"""Processes of this machine: by a variable in their environment, which their children inherit, and by their parents."""

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path


def started_with(name: str, value: object) -> list[int]:
    """Return the processes that were started with this variable."""
    variable = f"{name}={value}".encode()
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # the process has ended or belongs to another user
            if variable in path.read_bytes().split(b"\0"):
                pids.append(int(path.parent.name))
    return pids


def kill_started_with(name: str, value: object) -> list[int]:
    """Kill the processes that were started with this variable; return their ids."""
    pids = started_with(name, value)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return pids


def ending_with(word: str, among: Iterable[int] | None = None) -> list[int]:
    """Return the programs of ranks whose command line ends with a word, not what started them; of all, or of some."""
    if among is None:
        among = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    pids = []
    for pid in among:
        with contextlib.suppress(OSError):  # the process has ended
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if line.endswith(word) and not {"rank.py", "mpiexec"} & {Path(part).name for part in line.split()[:9]}:
                pids.append(pid)
    return pids


def innermost(pid: int) -> int:
    """Return the last one of a process's newest child, the newest child of that, and so on."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[-1])
    return pid
