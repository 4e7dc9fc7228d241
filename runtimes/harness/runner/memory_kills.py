"""Memory kills: how many processes of this control group the kernel has killed because memory was short.

The kernel counts them in ``memory.events`` (cgroup v2) and ``memory.oom_control`` (v1), see
https://docs.kernel.org/admin-guide/cgroup-v2.html; the root group has neither. A container init uses this too: standard
library only.
"""

import contextlib
from pathlib import Path


def memory_kills(own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the count, or None where the kernel does not keep it."""
    for path in _counters(own, root):
        with contextlib.suppress(OSError, ValueError, StopIteration):
            lines = path.read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return None


def _counters(own: Path, root: Path) -> list[Path]:
    """Return the files that may have the count of this process's group."""
    try:
        groups = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return []
    counters = []
    for _, controllers, path in groups:
        if not controllers:
            counters.append(root / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            # In a container the path may be the machine's, while its own group is mounted at the root.
            folder = root / "memory"
            counters += [folder / path.lstrip("/") / "memory.oom_control", folder / "memory.oom_control"]
    return counters
