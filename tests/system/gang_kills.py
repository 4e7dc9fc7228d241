"""Kills of a gang's processes: which there are, the moments at which one is killed, and what must not be left of it."""

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from tests.system.gang_places import PATIENCE, StartedGang, wait
from tests.system.platform_process import census, lives
from tests.waiting import until

#: What the command line of each kind of process contains, the innermost first: that of a sandbox names the program.
KINDS: Mapping[str, str] = {
    "build": r"^\S*python\S* build\.py ",
    "proxy": r"hydra_pmi_proxy ",
    "launcher": r"^\S*mpiexec(\.hydra)? ",
    "watcher": r"/gang/rank\.py ",
    "sandbox": r"gang\.shared_sandbox ",
    "step": r"srun .*gang\.gang_node",
    "node": r"python.* -m runtimes\.harness\.gang\.(gang_node|replica) ",
    "runner": r"harness\.gang\.local_gang |workers\.gang_(job|runner) ",
}
#: Namespaces that a sandbox has for itself.
NAMESPACES = ("net", "mnt", "pid", "ipc")
#: Ranks of the gangs that are killed; seconds between two looks at what their processes have.
RANKS, INTERVAL = 2, 0.25
#: Clock ticks a second.
TICKS = os.sysconf("SC_CLK_TCK")
#: The state of a TCP socket that listens (include/net/tcp_states.h).
LISTEN = 10
#: The machine's own, in which this process is.
OWN = {name: os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES}


@dataclass(frozen=True, slots=True)
class GangProcess:
    """A process of a gang; ``name``: as it calls itself, by which ranks tell what they do."""

    pid: int
    started_at: int
    kind: str
    name: str


@dataclass(slots=True)
class GangSight:
    """A gang as it is seen in /proc while it runs. ``mark``: the word with which its program's command line ends."""

    gang: StartedGang
    mark: str
    #: All processes that were seen, and the namespaces and listening sockets (inodes) that they had. Of a namespace
    #: the clock tick since boot at which it was last seen: the kernel gives its number to a new one once it is gone.
    seen: set[tuple[int, int]] = field(default_factory=set)
    namespaces: dict[str, int] = field(default_factory=dict)
    listening: set[str] = field(default_factory=set)
    _remember_at: float = 0.0

    def look(self) -> list[GangProcess]:
        """Return its processes as they are now, and remember what they have."""
        table = dict(census())
        children: dict[int, list[int]] = {}
        for pid, (parent, _) in table.items():
            children.setdefault(parent, []).append(pid)
        lines = {pid: line for pid in table if (line := command_line(pid))}
        waiting = [pid for pid, line in lines.items() if self.mark in line]
        waiting += [pid for pid in self.gang.processes() if pid in lines]
        found: dict[int, GangProcess] = {}
        while waiting:
            pid = waiting.pop()
            if pid in found or pid not in table:
                continue
            found[pid] = GangProcess(pid, table[pid][1], self._kind_of(lines.get(pid, "")), name_of(pid))
            waiting += children.get(pid, [])
        known = [process for process in found.values() if process.kind]
        self.seen |= {(process.pid, process.started_at) for process in known}
        if time.monotonic() >= self._remember_at:
            for process in known:
                self._remember(process.pid)
            self._remember_at = time.monotonic() + INTERVAL
        return known

    def _kind_of(self, line: str) -> str:
        for kind, pattern in KINDS.items():
            if re.search(pattern, line):
                return kind
        return "rank" if line.endswith(f"model.py {self.mark}") else ""

    def _remember(self, pid: int) -> None:
        with contextlib.suppress(OSError):
            for name in NAMESPACES:
                if (namespace := os.readlink(f"/proc/{pid}/ns/{name}")) != OWN[name]:
                    self.namespaces[namespace] = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS)
            listening = inodes_that_listen(Path(f"/proc/{pid}/net"))
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if (opened := os.readlink(link)).startswith("socket:[") and opened[8:-1] in listening:
                        self.listening.add(opened[8:-1])

    def has_stored(self, pattern: str, number: int = 1) -> bool:
        """Return whether the simulation has objects; ``pattern``: a kind of objects, and a pattern in its folder."""
        kind, _, rest = pattern.partition("/")
        return len(list((self.gang.objects / kind / self.gang.id).glob(rest))) >= number

    def names(self) -> set[str]:
        """Return how ranks call themselves now."""
        return {process.name for process in self.look() if process.kind == "rank"}

    def kinds(self) -> set[str]:
        """Return the kinds of processes that there are now."""
        return {process.kind for process in self.look()}

    def kill(self, rng: random.Random) -> str:
        """Kill a process, of a kind that is drawn among those that are there; return its kind."""

        def killed() -> str:
            processes = sorted(self.look(), key=lambda process: process.pid)
            if not processes:
                return "none"
            kind = rng.choice(sorted({process.kind for process in processes}))
            victim = rng.choice([process for process in processes if process.kind == kind])
            return kind if kill(victim) else ""

        return until(killed, message="no process of the gang can be killed")

    def left(self) -> Iterator[str]:
        """Yield what is left of a gang that has ended."""
        for pid, started_at in self.seen:
            if lives(pid, started_at):
                yield f"process {pid}: {command_line(pid)[:200]}"
        for pid, (_, started_at) in census():
            if self.mark in (line := command_line(pid)) and (pid, started_at) not in self.seen:
                yield f"process {pid}: {line[:200]}"
            with contextlib.suppress(OSError):
                for name in NAMESPACES:
                    if started_at <= self.namespaces.get(os.readlink(f"/proc/{pid}/ns/{name}"), -1):
                        yield f"namespace {name} with process {pid}: {line[:200]}"
        if ports := self.listening & inodes_that_listen(Path("/proc/self/net")):
            yield f"listening sockets {ports}"
        creators = {str(pid) for pid, _ in self.seen}
        rows = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
        yield from (f"System V memory {row[1]} of process {row[4]}" for row in rows if row[4] in creators)
        yield from map(str, self._files())

    def _files(self) -> Iterator[Path]:
        """Yield files that are left: what a task has in memory, and in the folders for tasks."""
        for folder in ("/tmp", "/dev/shm"):
            yield from Path(folder).glob(f"*{self.mark}*")
        patterns = ("*/task-*", "*/build-*", "*/builds/.draft-*", f"*/*{self.mark}*")
        # os.walk leaves out folders that are removed meanwhile.
        walks = (walk for folder in self.gang.folders for walk in os.walk(folder))
        paths = (Path(place, name) for place, folders, names in walks for name in (*folders, *names))
        for path in paths:
            if "objects" not in path.parts and any(fnmatch(str(path), pattern) for pattern in patterns):
                yield path


def kill(process: GangProcess) -> bool:
    """Kill a process; return whether it was still there."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not lives(process.pid, process.started_at):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def command_line(pid: int) -> str:
    """Return the command line of a process; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def name_of(pid: int) -> str:
    """Return how a process calls itself; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def inodes_that_listen(net: Path) -> set[str]:
    """Return the inodes of the TCP sockets that listen in a network namespace."""
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in (net / table).read_text().splitlines()[1:]]
            found |= {row[9] for row in rows if int(row[3], 16) == LISTEN}
    return found


Moment = Callable[[GangSight], object]
#: The phases of a gang, each with the state in which it is.
MOMENTS: Mapping[str, Moment] = {
    "preparing": lambda sight: sight.look(),
    "building": lambda sight: "build" in sight.kinds(),
    "starting": lambda sight: sight.kinds() & {"launcher", "proxy"},
    "computing": lambda sight: "computes" in sight.names(),
    "saving": lambda sight: "saves" in sight.names(),
    "uploading": lambda sight: sight.has_stored("checkpoints/*/part-*"),
    "uploaded": lambda sight: sight.has_stored("checkpoints/*/manifest-*"),
    "leaving outputs": lambda sight: "outputs" in sight.names(),
    "storing outputs": lambda sight: sight.has_stored("results/*-*-*"),
    "reporting": lambda sight: sight.has_stored("results/*0-*-*", RANKS),
    "between two tasks": lambda sight: sight.gang.has_result(),
}


def reach(sight: GangSight, moment: str, rng: random.Random, longest: float = 0.3) -> bool:
    """Wait for a moment's state, and then for a drawn time, in seconds; return whether the gang did not end before."""

    def reached() -> str:
        if MOMENTS[moment](sight):
            return "reached"
        return "ended" if sight.gang.has_ended() else ""

    if until(reached, PATIENCE, f"the gang is never {moment}", every=0.005) == "ended":
        return False
    wait(rng.uniform(0.0, longest))
    return True
