"""Gang transport: connections between the machines of a gang, and what its programs leave behind on one of them.

A message is a line of JSON, an object; one with the member ``data`` is followed by that many bytes.
"""

import contextlib
import ctypes
import hashlib
import hmac
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

#: Limit in bytes of a received message; a result is part of one. The most bytes of a file in one, and that are read.
LONGEST_MESSAGE, LONGEST_DATA, READ = 16 << 20, 1 << 20, 256 << 10
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
        self._sending = threading.Lock()
        if connection.family == socket.AF_UNIX:
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A machine that is gone closes no connection: keep-alive probes detect it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
            connection.setsockopt(socket.IPPROTO_TCP, option, seconds)

    def send(self, data: bytes = b"", /, **message: Any) -> None:
        """Send one message, with bytes after it if there are any; raises ReplicaLost if the peer is gone."""
        described = {**message, "data": len(data)} if data else message
        try:
            with self._sending:
                self.connection.sendall(json.dumps(described).encode() + b"\n" + data)
        except OSError as error:
            raise ReplicaLost(str(error)) from None

    def receive(self) -> list[Message]:
        """Wait for bytes; return the messages that are complete, possibly none. Their ``data`` are bytes."""
        try:
            piece = self.connection.recv(READ)
        except OSError as error:
            raise ReplicaLost(str(error)) from None
        self._read += piece
        if not piece or len(self._read) > LONGEST_MESSAGE:
            raise ReplicaLost(
                f"it sent a message longer than {LONGEST_MESSAGE >> 20} MiB" if piece else "it closed the connection"
            )
        messages = []
        while (message := self._take()) is not None:
            messages.append(message)
        return messages

    def _take(self) -> Message | None:
        """Remove a message that is complete from what was read; None: none is."""
        end = self._read.find(b"\n") + 1
        if not end:
            return None
        message = _parse(bytes(self._read[:end]))
        size = message.get("data", 0)
        if not isinstance(size, int) or not 0 <= size <= LONGEST_DATA:
            raise ReplicaLost("it sent a message with a wrong number of bytes")
        if len(self._read) < end + size:
            return None
        if size:
            message = {**message, "data": bytes(self._read[end : end + size])}
        del self._read[: end + size]
        return message


def _parse(line: bytes) -> dict[str, object]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise ReplicaLost("it sent a line that is not JSON") from None
    if not isinstance(message, dict):
        raise ReplicaLost("it sent a line that is not a JSON object")
    return message


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


def proof(key: str, *words: object) -> str:
    """Return the HMAC of the words: only a holder of the key can compute it."""
    return hmac.new(key.encode(), json.dumps(words).encode(), hashlib.sha256).hexdigest()
