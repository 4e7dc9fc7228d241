"""The runner API as a runner sees it: tried again for as long as there may be an answer."""

import http.client
import random
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

#: Seconds of trying before a runner gives its launch up; a restart of the other side takes a few.
PATIENCE = 600.0
#: Seconds one request may take; then it is sent again, for every request may be repeated.
TIMEOUT = 30.0
SHORTEST, LONGEST = 0.05, 2.0
_LENGTH = struct.Struct("<I")


class Over(Exception):
    """The launch is over: drop everything and exit."""


class Unreachable(Exception):
    """There was no answer for so long that there will be none."""


class Unreadable(Exception):
    """The other side understood, and will never take it."""


class Lease(msgspec.Struct, frozen=True):
    """A range lent: play from ``cursor`` to ``stop``. One result a report up to the task ``careful``."""

    stage: str
    start: int
    cursor: int
    stop: int
    fencing_token: str
    ttl: float
    careful: int = -1


class Answer(msgspec.Struct, frozen=True):
    """What the other side says. ``cursor`` and ``stop`` None: nothing is said of the range."""

    cursor: int | None = None
    stop: int | None = None
    lost: bool = False
    lease: Lease | None = None
    retry_after: float | None = None
    ended: bool = False


class Standing(msgspec.Struct, frozen=True):
    """How a lease stands that was named in a heartbeat."""

    start: int
    cursor: int = 0
    stop: int = 0
    lost: bool = False


class _Heartbeats(msgspec.Struct, frozen=True):
    leases: list[Standing]


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """Where to report to, and with what right."""

    url: str
    launch: str
    token: str


class Surface:
    """One connection, for one thread."""

    def __init__(
        self,
        credentials: Credentials,
        stop: threading.Event,
        *,
        patience: float = PATIENCE,
        time_out: float = TIMEOUT,
    ) -> None:
        self._place = urlsplit(credentials.url)
        self._path = f"{self._place.path.rstrip('/')}/v1/launches/{credentials.launch}"
        self._time_out = time_out
        self._headers = {"Authorization": f"Bearer {credentials.token}", "Content-Type": "application/json"}
        self._stop = stop
        self._patience = patience
        self._connection: http.client.HTTPConnection | None = None

    def launch(self) -> dict[str, Any]:
        """Return what is to be played."""
        answer: dict[str, Any] = msgspec.json.decode(self._ask("GET", "", b"")[1])
        return answer

    def wait(self) -> dict[str, Any]:
        """Return what is to be played as soon as somebody has a use for us."""
        while "retry_after" in (answer := msgspec.json.decode(self._ask("GET", "/wait", b"")[1])):
            continue
        found: dict[str, Any] = answer
        return found

    def lease(self, worker: str, rate: float | None) -> Answer:
        """Ask for a range."""
        return self._answer("lease", {"worker": worker, "rate": rate})

    def report(self, head: Mapping[str, Any], lines: memoryview, blobs: memoryview) -> tuple[bool, Answer]:
        """Hand results in; tell whether they were taken, and where to go on."""
        header = msgspec.json.encode(head)
        body = b"".join((_LENGTH.pack(len(header)), header, lines, blobs))
        status, answer = self._ask("POST", "/report", body)
        return status == 200, msgspec.json.decode(answer, type=Answer)

    def heartbeat(self, leases: Sequence[Mapping[str, Any]]) -> list[Standing]:
        """Say that these leases are alive and on which task; return how each stands."""
        body = msgspec.json.encode({"leases": leases})
        return msgspec.json.decode(self._ask("POST", "/heartbeat", body)[1], type=_Heartbeats).leases

    def leave(self, leases: Sequence[Mapping[str, Any]]) -> None:
        """Give leases back that nobody is to be blamed for."""
        self._ask("POST", "/leave", msgspec.json.encode({"leases": leases}))

    def death(self, said: Mapping[str, Any]) -> None:
        """Bear witness that an evaluator died by itself."""
        self._answer("death", said)

    def refused(self, reason: str, status: str) -> None:
        """Say that the model does not load or does not fit."""
        self._answer("refused", {"reason": reason, "status": status})

    def log(self, name: str, data: bytes) -> None:
        """Hand over a piece of output."""
        self._ask("POST", f"/logs?name={quote(name)}", data)

    def _answer(self, verb: str, body: Mapping[str, Any]) -> Answer:
        return msgspec.json.decode(self._ask("POST", f"/{verb}", msgspec.json.encode(body))[1], type=Answer)

    def _ask(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Send until there is an answer that means something."""
        began = time.monotonic()
        pause = 0.0
        while True:
            if self._stop.is_set():
                # From now on model servers and evaluators die because we end them: no report may hold that against the
                # model.
                raise Over("the runner stops")
            fresh = self._connection is None
            try:
                status, answer = self._send(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not fresh and pause == 0.0:
                    pause = SHORTEST
                    continue  # an idle connection had been closed: no reason to wait
                status, answer = 0, str(error).encode()
            if status in {200, 409}:
                return status, answer
            if status in {401, 410}:
                raise Over(f"HTTP {status}")
            if status and status < 500 and status not in {408, 429}:
                raise Unreadable(f"HTTP {status}: {bytes(answer[:500]).decode(errors='replace')}")
            if time.monotonic() - began > self._patience:
                raise Unreachable(f"no answer for {self._patience:.0f} s: HTTP {status} {answer[:200]!r}")
            # Jitter, or all runners come back to a restarted service at once.
            pause = min(LONGEST, max(SHORTEST, pause * 2))
            if self._stop.wait(pause * random.uniform(0.5, 1.0)):
                raise Over("the runner stops")

    def _send(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = connection(self._place, self._time_out)
        self._connection.request(method, self._path + path, body, self._headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    def close(self) -> None:
        """Drop the connection; the next request makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def connection(place: SplitResult, time_out: float) -> http.client.HTTPConnection:
    """Connect to where an address leads."""
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    made = kind(place.hostname or "127.0.0.1", place.port, timeout=time_out)
    made.connect()
    made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
