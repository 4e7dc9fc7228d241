"""Machine memory: what this machine or control group has left, whether processes wait for it, what processes use."""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
#: Part of the machine's memory, and at least so many bytes, that warm runners leave to others.
RESERVED_PART, RESERVED = 0.05, 256 << 20
#: Percent of the last ten seconds in which some process waited for memory, above which memory is short.
STALLED = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineMemory:
    """``spare``: bytes that may be used besides what is reserved, negative if there are too few; ``stalled``: PSI."""

    spare: int
    stalled: bool


def machine_memory(proc: Path = PROC, cgroup: Path = CGROUP) -> MachineMemory:
    """Read the memory that this machine, or this process's control group, has left."""
    text = (proc / "meminfo").read_text()
    fields = {name: int(size) << 10 for name, size in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}
    reserved = max(RESERVED, int(RESERVED_PART * fields["MemTotal"]))
    spare = fields["MemAvailable"] - reserved
    with contextlib.suppress(OSError, ValueError, KeyError):  # no control group of its own, or no limit ("max")
        limit, current = (int((cgroup / name).read_text()) for name in ("memory.max", "memory.current"))
        cache = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        spare = min(spare, limit - current + int(cache["inactive_file"]) - max(RESERVED // 4, limit // 20))
    return MachineMemory(spare=spare, stalled=_pressure(proc) > STALLED)


def _pressure(proc: Path) -> float:
    """Return the percentage `some avg10` of memory's PSI; 0 where the kernel does not tell."""
    with contextlib.suppress(OSError, AttributeError):
        text = (proc / "pressure" / "memory").read_text()
        return float(re.search(r"^some avg10=([\d.]+)", text, re.MULTILINE)[1])  # type: ignore[index]
    return 0.0


def memory_by_name(roots: Mapping[int, str], names: Iterable[str], proc: Path = PROC) -> Mapping[str, int]:
    """Return the bytes that processes and their descendants use, by name. ``roots``: the name that counts for each.

    A descendant counts for its own name (`comm`) if that is one of ``names``, else for the name of its parent. PSS, in
    which shared pages are counted once; where that may not be read, what is not shared with files.
    """
    known = {*names, *roots.values()}
    children: dict[int, list[int]] = {}
    for entry in os.listdir(proc):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = (proc / entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(stat[1]), []).append(int(entry))
    totals = dict.fromkeys(known, 0)
    pending = list(roots.items())
    while pending:
        pid, name = pending.pop()
        for child in children.get(pid, ()):
            with contextlib.suppress(OSError):
                own = (proc / str(child) / "comm").read_text().strip()
                pending.append((child, own if own in known else name))
        with contextlib.suppress(OSError):
            totals[name] += _memory(proc / str(pid))
    return totals


def _memory(process: Path) -> int:
    try:
        pss = re.search(r"^Pss:\s+(\d+) kB", (process / "smaps_rollup").read_text(), re.MULTILINE)
        return int(pss[1]) << 10 if pss else 0
    except OSError:
        _, resident, shared, *_ = map(int, (process / "statm").read_text().split())
        return max(0, resident - shared) * os.sysconf("SC_PAGE_SIZE")
