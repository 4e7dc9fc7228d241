"""What the pods of a gang have in common: lines of JSON between them, and the programs that they run."""

import contextlib
import ctypes
import hashlib
import hmac
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

#: The longest line, a result included.
LONGEST = 16 << 20

Message = Mapping[str, Any]


class Lost(Exception):
    """The other side is gone, or is not who it should be."""


class Line:
    """A connection that carries lines of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._read = bytearray()
        if connection.family == socket.AF_UNIX:
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A peer whose machine is gone says nothing any more: have the kernel ask.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
            connection.setsockopt(socket.IPPROTO_TCP, option, seconds)

    def say(self, **message: Any) -> None:
        """Send one; whoever does not take it is lost."""
        try:
            self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise Lost(str(error)) from None

    def hear(self) -> list[Message]:
        """Return what has come, once something has."""
        try:
            piece = self.connection.recv(1 << 16)
        except OSError as error:
            raise Lost(str(error)) from None
        self._read += piece
        if not piece or len(self._read) > LONGEST:
            raise Lost("it hung up" if not piece else "it said too much")
        *whole, rest = bytes(self._read).split(b"\n")
        self._read = bytearray(rest)
        try:
            heard = [json.loads(line) for line in whole]
        except ValueError:
            raise Lost("it does not speak our language") from None
        if not all(isinstance(one, dict) for one in heard):
            raise Lost("it does not speak our language")
        return heard


_libc = ctypes.CDLL(None)
PR_SET_CHILD_SUBREAPER = 36


def _dying_with(parent: int) -> Callable[[], None]:
    """Return what a child does first: ask to die with its parent, and die at once if that is gone already."""

    def ask() -> None:
        _libc.prctl(1, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def adopt_orphans() -> None:
    """Be the parent of whatever programs of ours leave behind, so that it can be found and ended."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    Program.adopting = True


def _sweep() -> None:
    """End all our children, and those who become ours thereby: MPI's ranks have sessions of their own, and spin."""
    while children := _children():
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just gone
            # The name before these fields may hold anything, parentheses too.
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(path.parent.name))
    return found


class Program:
    """A command that runs, with all it starts. ``adopting``: what it leaves behind is ours, and ended with it."""

    adopting = False

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        model = folder / "model"
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            env=environ(folder),
            cwd=model if model.is_dir() else None,
            start_new_session=True,
            preexec_fn=_dying_with(os.getpid()),
        )
        self.pidfd = os.pidfd_open(self._process.pid)

    def end(self) -> int:
        """End it, if it has not ended yet, and what it left behind; return its exit, as a shell would say it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        os.close(self.pidfd)
        code = self._process.wait()
        if self.adopting:
            _sweep()
        return code if code >= 0 else 128 - code

    def exit(self) -> int:
        """Return how it ended, now that it has."""
        self._process.wait()
        return self.end()


def unstarted(error: OSError) -> int:
    """Say why a command could not be started; return its exit, as a shell would say it."""
    print(f"the program cannot be started: {error}", file=sys.stderr)
    return 127 if isinstance(error, FileNotFoundError) else 126


def proof(key: str, *words: object) -> str:
    """Return what only one who knows the key can say."""
    return hmac.new(key.encode(), json.dumps(words).encode(), hashlib.sha256).hexdigest()


def lay_out(packed: Path, folder: Path, name: str) -> None:
    """Put a model where its program runs: unpacked if it is a zip, programs as such, else under its name."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(packed, "rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
    if not zipped:
        packed.rename(folder / Path(name).name)
        return
    from ..models.unpacking import unpack  # what is not sent needs no unpacking

    unpack(packed.read_bytes(), folder)
    with zipfile.ZipFile(packed) as archive:
        for entry in archive.infolist():
            if not entry.is_dir():
                (folder / entry.filename).chmod(0o755 if entry.external_attr >> 16 & stat.S_IXUSR else 0o644)
    packed.unlink()


def environ(folder: Path) -> dict[str, str]:
    """Return what a program is told: what its pod was, less the key."""
    told = {name: value for name, value in os.environ.items() if name != "WINDTUNNEL_GANG_KEY"}
    files = {"WINDTUNNEL_SCENARIO": folder / "scenario.json", "WINDTUNNEL_RESULT": folder / "result.json"}
    return told | {name: str(path) for name, path in files.items()}
