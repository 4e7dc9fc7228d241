"""The platform's processes, their memory and their processor time, read from /proc."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Patterns of command lines by component; the first match counts.
COMPONENTS = (
    ("runner", r'fork_server.*"module": "runner"'),
    ("evaluator", r'fork_server.*"module": "evaluator"'),
    ("model server", r'fork_server.*"module": "model_server"'),
    ("api", r"server\x00api|app:create_api"),
    ("runner-api", r"server\x00runner-api|app:create_runner_api"),
    ("dispatch", r"server\x00dispatch"),
    ("jobs", r"server\x00jobs"),
    ("agent", r"server\x00agent"),
    ("scs", r"server\x00scs"),
    ("supervisor", r"server\x00run\x00"),
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

#: Roles, which the supervisor forks.
FORKED = frozenset(name for name, pattern in COMPONENTS if pattern.startswith(r"server\x00")) - {"supervisor"}


def tree(root: int) -> dict[int, int]:
    """Return a process and its descendants, each with its parent."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # the process has ended
        children.setdefault(parent, []).append(int(stat.parent.name))
    found, pending = {root: 0}, [root]
    while pending:
        parent = pending.pop()
        for pid in children.get(parent, []):
            found[pid] = parent
            pending.append(pid)
    return found


def component_of(pid: int) -> str:
    """Return the component of the platform to which a process belongs."""
    command = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    if command.endswith("server\x00run\x00"):
        # The supervisor, or a role: a fork with the command line of the supervisor and a name of its own.
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        command = f"server\x00{name}\x00" if name in FORKED else command
    return next((name for name, pattern in COMPONENTS if re.search(pattern, command)), "other")


def memory(root: int) -> dict[str, dict[str, float]]:
    """Return each component's number of processes, and their PSS in MiB: shared pages are counted once."""
    components: dict[str, dict[str, float]] = {}
    for pid in tree(root):
        try:
            pss = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
            name = component_of(pid)
        except OSError:
            continue  # the process has ended
        component = components.setdefault(name, {"processes": 0, "mib": 0.0})
        component["processes"] += 1
        component["mib"] += int(pss[1]) / 1024 if pss else 0.0
    return components


def total(components: dict[str, dict[str, float]]) -> float:
    """Return the sum of memory in MiB."""
    return sum(component["mib"] for component in components.values())


def processor_seconds(pid: int) -> float:
    """Return the processor seconds that a process and the children that it has waited for have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def metered(root: int) -> Iterator[dict[str, float]]:
    """Count processor seconds by component while the block runs, in samples.

    Most processes of scenarios live shorter than the time between samples; their parent has waited for them, and they
    count with it. A process that ended with its parent counts with its last sample, because it was not waited for.
    """
    spent: dict[str, float] = {}
    last: dict[int, tuple[str, float]] = {}
    first: dict[int, float] = {}
    living: dict[int, int] = {}

    def sample() -> None:
        nonlocal living
        now = tree(root)
        for pid in now:
            try:
                seconds, name = processor_seconds(pid), component_of(pid)
            except OSError:
                continue  # the process has ended
            previous = last.get(pid)
            # a zombie has no command line
            last[pid] = (previous[0] if previous and name == "other" else name, seconds)
        for pid in living.keys() - now.keys():
            if living[pid] in now and pid in last:
                # Its parent waited for it, so that its seconds, also those before the block, are the parent's now.
                del last[pid]
                first[living[pid]] = first.get(living[pid], 0.0) + first.pop(pid, 0.0)
        living = now

    stopped = threading.Event()

    def sample_until_stopped() -> None:
        while not stopped.wait(0.2):
            sample()

    sample()
    first |= {pid: seconds for pid, (_, seconds) in last.items()}
    sampler = threading.Thread(target=sample_until_stopped)
    sampler.start()
    try:
        yield spent
    finally:
        stopped.set()
        sampler.join()
        sample()
        for pid, (name, seconds) in last.items():
            spent[name] = spent.get(name, 0.0) + seconds - first.get(pid, 0.0)
