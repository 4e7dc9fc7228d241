"""The platform's processes, their memory and their processor time, read from /proc."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Patterns of command lines by component; the first match counts.
PARTS = (
    ("api", r"server\x00api|app:create_api"),
    ("runner-api", r"server\x00runner-api|app:create_runner_api"),
    ("dispatch", r"server\x00dispatch"),
    ("jobs", r"server\x00jobs"),
    ("agent", r"server\x00agent"),
    ("scs", r"server\x00scs"),
    ("supervisor", r"server\x00run"),
    ("valkey", r"valkey-server|redis-server"),
    ("runner", r"harness\.runner\.runner"),
    ("evaluator", r"harness\.evaluator"),
    ("model server", r"harness\.model_server"),
    ("API server", r"^[^\x00]*/kube-apiserver\x00"),
    ("etcd", r"^[^\x00]*/etcd\x00"),
    ("controllers", r"^[^\x00]*/kube-controller-manager\x00"),
    ("scheduler", r"^[^\x00]*/kube-scheduler\x00"),
    ("JobSet", r"^/manager\x00"),
    ("KWOK", r"^[^\x00]*/kwok[^\x00/]*\x00"),
    ("kubelet", r"^[^\x00]*/kubelet\x00"),
    ("containerd", r"^[^\x00]*/?containerd"),
)


def tree(root: int) -> list[int]:
    """Return a process and its descendants."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended meanwhile
        parents.setdefault(parent, []).append(int(stat.parent.name))
    found, rest = [], [root]
    while rest:
        found.append(pid := rest.pop())
        rest += parents.get(pid, [])
    return found


def part(pid: int) -> str:
    """Return the component of the platform to which a process belongs."""
    command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return next((name for name, pattern in PARTS if re.search(pattern, command)), "other")


def memory(root: int) -> dict[str, dict[str, float]]:
    """Return each component's number of processes, and their PSS in MiB: shared pages are counted once."""
    parts: dict[str, dict[str, float]] = {}
    for pid in tree(root):
        try:
            held = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
            name = part(pid)
        except OSError:
            continue  # it ended meanwhile
        found = parts.setdefault(name, {"processes": 0, "mib": 0.0})
        found["processes"] += 1
        found["mib"] += int(held[1]) / 1024 if held else 0.0
    return parts


def total(parts: dict[str, dict[str, float]]) -> float:
    """Return the sum of memory in MiB."""
    return sum(found["mib"] for found in parts.values())


def used(pid: int) -> float:
    """Return the processor seconds a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def metered(root: int) -> Iterator[dict[str, float]]:
    """Count processor seconds by component while the block runs; a process that ends in it counts as last sampled."""
    spent: dict[str, float] = {}
    last: dict[int, tuple[str, float]] = {}

    def look() -> None:
        for pid in tree(root):
            try:
                seconds, name = used(pid), part(pid)
            except OSError:
                continue  # it ended meanwhile
            known = last.get(pid)
            # a zombie has no command line
            last[pid] = (known[0] if known and name == "other" else name, seconds)

    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            look()

    look()
    first = {pid: seconds for pid, (_, seconds) in last.items()}
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield spent
    finally:
        over.set()
        watcher.join()
        look()
        for pid, (name, seconds) in last.items():
            spent[name] = spent.get(name, 0.0) + seconds - first.get(pid, 0.0)
