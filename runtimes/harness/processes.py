"""Starting players and hosts: their interpreter, environment, descriptors, confinement, and how they ended.

Spawn from the main thread only: the kernel ties a child's request to die with its parent to the thread that forked it.
"""

import contextlib
import json
import mmap
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .channel import Channel

#: Dies with its parent, also when the parent was gone before it could ask; then becomes the named module.
BOOT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.getppid() == int(sys.argv[1]) or os._exit(1); "
    "sys.path[:0] = sys.argv[2].split(':'); del sys.argv[1:3]; from harness.{module} import main; main()"
)
#: Nothing of the machine's environment; hashes are not salted, or a model that walks a set would differ between runs.
ENVIRON: Mapping[str, str] = {
    "HOME": "/tmp",
    "LC_ALL": "C.UTF-8",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PATH": "/usr/bin:/bin",
    "PYTHONHASHSEED": "0",
    "TMPDIR": "/tmp",
}
#: As isolated as `-I`, which would also ignore the hash seed: the environment is ours entirely. No `.pth` file is read.
FLAGS = ("-s", "-S", "-B", "-P", "-u")


@dataclass(frozen=True, kw_only=True, slots=True)
class Kit:
    """All it takes to start the players and hosts of one kind; made of strings and numbers, so that it travels as JSON.

    ``sandbox`` is the level to confine at, or None for no sandbox. ``isolation`` is "scenario" or "launch".
    Memory is in bytes.
    """

    python: str
    harness: str
    dataset: str
    player_site: str
    host_site: str
    format: str
    isolation: str
    sandbox: int | None
    player_memory: int = 4 << 30
    host_memory: int = 4 << 30

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Kit":
        """Read the JSON form."""
        return cls(**values)

    def describe(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


class Process:
    """One child: ``output`` is what it prints, ``pidfd`` is readable once it has ended, ``how`` says how it did."""

    def __init__(self, name: str, popen: "subprocess.Popen[bytes]", output: int) -> None:
        self.name = name
        self.output = output
        self.pidfd = os.pidfd_open(popen.pid)
        self.how: str | None = None
        self._popen = popen
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def kill(self) -> None:
        """End it, and what it started, at once; harmless afterwards."""
        with self._lock:
            if self.how is None:
                with contextlib.suppress(ProcessLookupError):  # ended and waited for, but not yet told so here
                    signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def reap(self) -> str:
        """Wait for its end, let go of its descriptors, and tell how it came. Once, by whoever started it."""
        how = ending(self._popen.wait())
        with self._lock:
            self.how = how
            os.close(self.pidfd)
            os.close(self.output)
        self._ended.set()
        return how

    def wait(self, timeout: float) -> str | None:
        """Wait until it has been reaped; return how it ended, or None if it lives on."""
        self._ended.wait(timeout)
        return self.how


class Page:
    """Sixteen bytes shared with a player: the task at work, which it writes, and where to stop, which it reads."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("page", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, 16)
        self._map = mmap.mmap(self.descriptor, 16)
        self._words = memoryview(self._map).cast("q")  # whole words: no half-written number is ever seen
        self._words[0] = -1

    @property
    def task(self) -> int:
        """The task at work, -1 before the first."""
        return self._words[0]

    @property
    def stop(self) -> int:
        """Where the player stops; moved down when a thief took the rest."""
        return self._words[1]

    @stop.setter
    def stop(self, task: int) -> None:
        self._words[1] = task

    def close(self) -> None:
        """Unmap it."""
        self._words.release()
        self._map.close()
        os.close(self.descriptor)


@dataclass(slots=True, eq=False)
class Player:
    """A player's process and the ways to it."""

    process: Process
    channel: Channel
    page: Page

    def dismiss(self) -> None:
        """End it and close the ways to it; once."""
        self.process.kill()
        self.channel.close()
        self.page.close()


@dataclass(slots=True, eq=False)
class Host:
    """A host's process and the socket on which its player will speak to it."""

    process: Process
    socket: socket.socket

    def dismiss(self) -> None:
        """End it and close the way to it; twice is harmless."""
        self.process.kill()
        self.socket.close()


def spawn_player(kit: Kit, name: str) -> Player:
    """Start a player, which imports its simulator, confines itself and waits for its set-up."""
    ours, theirs = socket.socketpair()
    page = Page()
    keep = (theirs.fileno(), page.descriptor)
    confinement = _confinement(kit, (kit.player_site, kit.dataset), keep, kit.player_memory)
    told = {"socket": keep[0], "page": keep[1], "dataset": kit.dataset, "confinement": confinement}
    process = _spawn(kit, "player", kit.player_site, told, keep, name)
    theirs.close()
    return Player(process, Channel(ours), page)


def spawn_host(kit: Kit, name: str) -> Host:
    """Start a host, which imports its format's libraries, confines itself and says hello on its socket."""
    ours, theirs = socket.socketpair()
    keep = (theirs.fileno(),)
    confinement = _confinement(kit, (kit.host_site,), keep, kit.host_memory)
    if confinement is not None:
        confinement["may_fork"] = kit.isolation == "scenario"
    told = {"socket": keep[0], "format": kit.format, "confinement": confinement, "isolation": kit.isolation}
    process = _spawn(kit, "host", kit.host_site, told, keep, name)
    theirs.close()
    return Host(process, ours)


def _confinement(kit: Kit, readonly: Sequence[str], keep: Sequence[int], memory: int) -> dict[str, Any] | None:
    if kit.sandbox is None:
        return None
    return {"readonly": list(readonly), "memory": memory, "keep": list(keep), "level": kit.sandbox}


def _spawn(kit: Kit, module: str, site: str, told: Mapping[str, Any], keep: Sequence[int], name: str) -> Process:
    paths = f"{os.path.dirname(kit.harness)}:{site}"
    command = [kit.python, *FLAGS, "-c", BOOT.format(module=module), str(os.getpid()), paths, json.dumps(told)]
    output, theirs = os.pipe()
    try:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            pass_fds=keep,
            env=dict(ENVIRON),
            cwd="/",
            start_new_session=True,  # the terminal's Ctrl-C is for the supervisor
        )
    finally:
        os.close(theirs)
    os.set_blocking(output, False)
    return Process(name, popen, output)


def pin(process: Process, core: int) -> None:
    """Keep a process and what it has started on one core: two that take turns wake each other faster there."""
    found = [process.pid]
    for pid in found:
        with contextlib.suppress(OSError):  # it may be ending
            os.sched_setaffinity(pid, {core})
            with open(f"/proc/{pid}/task/{pid}/children") as children:
                found += map(int, children.read().split())


def ending(code: int) -> str:
    """Tell in words how a process ended, from its return code (a sandbox passes a signal on as 128 + its number)."""
    number = -code if code < 0 else code - 128
    if number > 0 and number in set(signal.Signals):
        name = signal.Signals(number).name
        return f"killed by {name}" + (" (out of memory?)" if number == signal.SIGKILL else "")
    return f"it exited with code {code}"
