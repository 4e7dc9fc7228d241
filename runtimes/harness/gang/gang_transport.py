"""Gang transport: connections that carry lines of JSON between the replicas of a gang, and the programs they run."""

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

#: Limit in bytes of a received line; a result is part of one.
LONGEST_MESSAGE = 16 << 20
#: Limit of a program's result in characters; of a longer result, one character more is sent.
RESULT = 64 << 10

Message = Mapping[str, Any]


class ReplicaLost(Exception):
    """A replica, the leader or the runner is gone, or is not the peer that it should be."""


class GangConnection:
    """A connection that carries messages: one JSON object per line."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._read = bytearray()
        if connection.family == socket.AF_UNIX:
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A machine that is gone closes no connection: keep-alive probes detect it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
            connection.setsockopt(socket.IPPROTO_TCP, option, seconds)

    def send(self, **message: Any) -> None:
        """Send one message; raises ReplicaLost if the peer is gone."""
        try:
            self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise ReplicaLost(str(error)) from None

    def receive(self) -> list[Message]:
        """Wait for data; return the messages that are complete, possibly none."""
        try:
            piece = self.connection.recv(1 << 16)
        except OSError as error:
            raise ReplicaLost(str(error)) from None
        self._read += piece
        if not piece or len(self._read) > LONGEST_MESSAGE:
            raise ReplicaLost(
                "it closed the connection" if not piece else f"it sent a line longer than {LONGEST_MESSAGE >> 20} MiB"
            )
        *whole, rest = bytes(self._read).split(b"\n")
        self._read = bytearray(rest)
        try:
            messages = [json.loads(line) for line in whole]
        except ValueError:
            raise ReplicaLost("it sent a line that is not JSON") from None
        if not all(isinstance(message, dict) for message in messages):
            raise ReplicaLost("it sent a line that is not a JSON object")
        return messages


_libc = ctypes.CDLL(None)
PR_SET_CHILD_SUBREAPER = 36


def dying_with(parent: int) -> Callable[[], None]:
    """Return a ``preexec_fn``: the child is killed when its parent exits, and exits at once if it is gone already."""

    def ask() -> None:
        _libc.prctl(1, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def adopt_orphans() -> None:
    """Become the subreaper of all descendants, so that processes that a program leaves behind can be killed."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    GangProgram.adopting = True


def sweep() -> None:
    """Kill all children, and descendants that become children thereby: MPI ranks have sessions of their own."""
    while children := _children():
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has just exited
            # The process name before these fields may contain parentheses.
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                pids.append(int(path.parent.name))
    return pids


class GangProgram:
    """A running command with its descendants. ``adopting``: this process is their subreaper, and kills those left."""

    adopting = False

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        model = folder / "model"
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            env=environ(folder),
            cwd=model if model.is_dir() else None,
            start_new_session=True,
            preexec_fn=dying_with(os.getpid()),
        )
        self.pidfd = os.pidfd_open(self._process.pid)

    def end(self) -> int:
        """Kill the command, if it still runs, and its descendants; return its exit status as a shell has it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        os.close(self.pidfd)
        code = self._process.wait()
        if self.adopting:
            sweep()
        return code if code >= 0 else 128 - code

    def exit(self) -> int:
        """Wait for the command to end; return its exit status as a shell has it."""
        self._process.wait()
        return self.end()


def unstarted(error: OSError) -> int:
    """Print why a command could not be started; return the exit status that a shell has for it."""
    print(f"the program cannot be started: {error}", file=sys.stderr)
    return 127 if isinstance(error, FileNotFoundError) else 126


def proof(key: str, *words: object) -> str:
    """Return the HMAC of the words: only a holder of the key can compute it."""
    return hmac.new(key.encode(), json.dumps(words).encode(), hashlib.sha256).hexdigest()


def lay_out(packed: Path, folder: Path, name: str) -> None:
    """Place a model in its folder: a zip is unpacked, with its executable bits; any other file can be executed."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(packed, "rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
    if not zipped:
        packed.rename(folder / Path(name).name).chmod(0o755)
        return
    from ..models.unpacking import (
        unpack,  # imported on demand: it imports numpy, and a model that is not a zip does not need it
    )

    unpack(packed.read_bytes(), folder)
    with zipfile.ZipFile(packed) as archive:
        for entry in archive.infolist():
            if not entry.is_dir():
                (folder / entry.filename).chmod(0o755 if entry.external_attr >> 16 & stat.S_IXUSR else 0o644)
    packed.unlink()


def environ(folder: Path) -> dict[str, str]:
    """Return a program's environment: its pod's without the key, and the paths of scenario and result."""
    inherited = {name: value for name, value in os.environ.items() if name != "WINDTUNNEL_GANG_KEY"}
    files = {"WINDTUNNEL_SCENARIO": folder / "scenario.json", "WINDTUNNEL_RESULT": folder / "result.json"}
    return inherited | {name: str(path) for name, path in files.items()}
