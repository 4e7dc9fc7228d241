"""Process times: what the kernel let a process and its descendants do, read from /proc and from control groups."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
#: Indices of the state and of the parent's id among the fields of /proc/PID/stat that follow the name.
STATE, PARENT = 0, 1
#: Index of the stolen time among the words of the first line of /proc/stat.
STEAL = 8
#: The states of a thread that runs or is ready to, and of one that no signal wakes: it waits for a disk.
READY, BLOCKED = b"R", b"D"


def process_times(pid: int) -> dict[str, Any] | None:
    """Return the fields of `ServerTimes` for a process and its descendants; None if the kernel does not tell them."""
    threads: dict[str, tuple[float, float]] = {}
    ready: list[str] = []
    memory, blocked = 0, False
    for process in (pid, *_descendants(pid)):
        with suppress(OSError):  # it has ended
            memory = max(memory, _peak_memory(process))
            for thread in os.listdir(PROC / str(process) / "task"):
                with suppress(OSError):
                    folder = PROC / str(process) / "task" / thread
                    cpu, queued, _ = (folder / "schedstat").read_text().split()
                    threads[thread] = (int(cpu) / 1e9, int(queued) / 1e9)
                    state = _fields(folder / "stat")[STATE]
                    ready += [thread] if state == READY else []
                    blocked = blocked or state == BLOCKED
    if not threads:
        return None
    return {
        "threads": threads,
        "ready": ready,
        "throttled": _throttled(pid),
        "stalled": _stalled(),
        "blocked": blocked,
        "stolen": _stolen(),
        "memory": memory,
    }


def _peak_memory(process: int) -> int:
    """Return the most bytes that a process had in memory (VmHWM of proc_pid_status(5)); 0 if it has none."""
    with open(PROC / str(process) / "status") as status:
        return next((int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:")), 0)


def _fields(stat: Path) -> list[bytes]:
    """Return the fields that follow the name, which may have blanks and parentheses."""
    return stat.read_bytes().rpartition(b")")[2].split()


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir(PROC):
        if name.isdigit():
            with suppress(OSError):
                children.setdefault(int(_fields(PROC / name / "stat")[PARENT]), []).append(int(name))
    found = list(children.get(pid, ()))
    for process in found:
        found += children.get(process, ())
    return found


def _throttled(pid: int) -> float:
    """Return the most seconds for which a CPU limit stopped the process's control group, or one around it."""
    most = 0.0
    with suppress(OSError):
        for line in (PROC / str(pid) / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            for hierarchy in _hierarchies(controllers):
                for folder in _upwards(hierarchy, path):
                    most = max(most, _throttled_of(folder / "cpu.stat"))
    return most


def _hierarchies(controllers: str) -> list[Path]:
    return [CGROUPS / controllers, CGROUPS / "cpu"] if controllers else [CGROUPS, CGROUPS / "unified"]


def _upwards(hierarchy: Path, path: str) -> Iterator[Path]:
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." not in parts:  # otherwise the group is outside what this process sees
        for length in range(len(parts), -1, -1):
            yield hierarchy.joinpath(*parts[:length])


def _throttled_of(stat: Path) -> float:
    """Read cpu.stat: microseconds in version 2 of control groups, nanoseconds in version 1."""
    with suppress(OSError):
        values = dict(line.split() for line in stat.read_text().splitlines())
        if "throttled_usec" in values:
            return int(values["throttled_usec"]) / 1e6
        return int(values.get("throttled_time", 0)) / 1e9
    return 0.0


def _stolen() -> float:
    """Return the seconds that the hypervisor took from each processor on average; 0 if they are unknown."""
    with suppress(OSError, ValueError, IndexError):
        first = (PROC / "stat").read_text().partition("\n")[0].split()
        return int(first[STEAL]) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
    return 0.0


def _stalled() -> float:
    with suppress(OSError, ValueError):
        for line in (PROC / "pressure" / "memory").read_text().splitlines():
            if line.startswith("full"):
                return int(line.rpartition("total=")[2]) / 1e6
    return 0.0
