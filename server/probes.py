"""Probes of supervised roles: whether a process still works, not only whether it exists. Nothing here blocks."""

import errno
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from common.ages import is_overdue

#: Seconds between two probes of a role, and seconds that the answer to one may take.
INTERVAL, ANSWER = 2.0, 2.0
#: Failed probes in succession before a role counts as hung: after a suspended machine resumes, the first one fails.
TRIES = 4
Address = str | tuple[str, int]


@dataclass(frozen=True, slots=True)
class Health:
    """The failed probes of a role since its last answer; ``since``: when the first of them began, in seconds."""

    failures: int = 0
    since: float = 0.0

    def after(self, answered: bool, began: float) -> "Health":
        """Return the health after a probe that began at a moment."""
        if answered:
            return Health()
        return Health(self.failures + 1, self.since if self.failures else began)

    def is_hung(self, now: float, patience: float) -> bool:
        """Return whether the role has not answered TRIES probes and for ``patience`` seconds."""
        return self.failures >= TRIES and now - self.since >= patience


class SocketExchange:
    """A request over a new connection, and the beginning of the answer that is expected."""

    def __init__(self, address: Address, request: bytes, expected: bytes) -> None:
        self._request, self._expected, self._answer = request, expected, b""
        family = (
            socket.AF_UNIX if isinstance(address, str) else socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        )
        self._socket = socket.socket(family)
        self._socket.setblocking(False)
        self._failed = False
        try:
            self._socket.connect(address)
        except BlockingIOError:
            pass  # in progress
        except OSError:
            self._failed = True  # no such socket, refused, or its backlog is full

    def result(self) -> bool | None:
        """Continue the exchange as far as possible; return whether it was answered, None while that is open."""
        try:
            if not self._failed and self._request:
                self._request = self._request[self._socket.send(self._request) :]
            while not self._failed and len(self._answer) < len(self._expected):
                data = self._socket.recv(4096)
                self._failed = not data
                self._answer += data
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.ENOTCONN:  # still connecting
                return None
            self._failed = True
        return not self._failed and self._answer.startswith(self._expected)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class LivenessFile:
    """The liveness file of a role (`workers/liveness.py`): its age when the probe begins."""

    def __init__(self, path: Path, seconds: float, now: Callable[[], float] = time.time) -> None:
        try:
            self._live = not is_overdue(path.stat().st_mtime, seconds, now())
        except OSError:
            self._live = True  # before the first iteration, only the process itself counts

    def result(self) -> bool | None:
        """Return whether the file is young enough."""
        return self._live

    def close(self) -> None:
        """Do nothing."""


#: A probe in progress, and the function that begins one.
Exchange = SocketExchange | LivenessFile
Probe = Callable[[], Exchange]


def http_probe(host: str, port: int, path: str = "/healthz") -> Probe:
    """Return a probe that expects the status 200."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    return lambda: SocketExchange((host, port), request, b"HTTP/1.1 200")


def redis_probe(path: Path, password: Callable[[], str]) -> Probe:
    """Return a probe of a Redis on a Unix socket: `AUTH`, then `PING`."""

    def begin() -> Exchange:
        request = b"".join(_command(*words) for words in (("AUTH", password()), ("PING",)))
        return SocketExchange(str(path), request, b"+OK\r\n+PONG\r\n")

    return begin


def agent_socket_probe(path: Path) -> Probe:
    """Return a probe of the node agent on its Unix socket."""
    request = b'{"verb": "observe", "ids": []}\n'
    return lambda: SocketExchange(str(path), request, b'{"answer"')


def file_probe(path: Path, seconds: float) -> Probe:
    """Return a probe of a liveness file's age."""
    return lambda: LivenessFile(path, seconds)


def _command(*words: str) -> bytes:
    """Return a command in the protocol of Redis (RESP)."""
    parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
    return f"*{len(words)}\r\n{''.join(parts)}".encode()
