"""Client of the runner API: retries with exponential back-off until the runner API answers or its patience ends."""

import contextlib
import encodings.idna  # noqa: F401 - every connection imports it, a forked runner once more for itself
import http.client
import random
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

from .runner_api_messages import (
    DeathReport,
    LeaseAnswer,
    LeaseEntries,
    LeaseEntry,
    LeaseRequest,
    LeaseStandings,
    ModelRefusal,
    ReportHeader,
    pack_report,
)

#: Seconds of retries before a runner gives its launch up; a restart of the service takes a few.
PATIENCE = 600.0
#: Seconds a request may take before it is sent again: every request is idempotent.
TIMEOUT = 30.0
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 2.0


class LaunchOver(Exception):
    """The launch is over: drop everything and exit."""


class Unreachable(Exception):
    """The runner API did not answer within the client's patience."""


class RequestRejected(Exception):
    """Permanent rejection (4xx): must not be retried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """The runner API's URL, the launch's id and its bearer token."""

    url: str
    launch: str
    token: str


class RunnerApi(Protocol):
    """The runner API as a runner uses it: over HTTP, or within the process that has the leases.

    Every method raises LaunchOver once the launch is over, RequestRejected or Unreachable.
    """

    def launch(self) -> dict[str, Any]:
        """Return the launch's description."""

    def lease(self, worker: str, rate: float | None) -> LeaseAnswer:
        """Request a lease."""

    def report(
        self, header: ReportHeader, lines: memoryview | bytes, blobs: memoryview | bytes
    ) -> tuple[bool, LeaseAnswer]:
        """Report results; return whether they were accepted, and the answer with the new cursor."""

    def heartbeat(self, leases: list[LeaseEntry]) -> LeaseStandings:
        """Renew these leases and report their current tasks; return each lease's state."""

    def leave(self, leases: list[LeaseEntry]) -> None:
        """Release leases; the tasks are not blamed."""

    def report_death(self, death: DeathReport) -> None:
        """Report that an evaluator died by itself."""

    def refuse_model(self, reason: str, status: str) -> None:
        """Report that the model does not load or does not fit."""

    def log(self, name: str, data: bytes) -> None:
        """Send a piece of captured output."""


class Connect(Protocol):
    """Opens a connection to the runner API. ``stop``, ``patience``, ``time_out``: as of `RunnerApiClient`."""

    def __call__(
        self, credentials: Credentials, stop: threading.Event, *, patience: float = ..., time_out: float = ...
    ) -> RunnerApi: ...


class RunnerApiClient(RunnerApi):
    """A connection to the runner API over HTTP; each thread needs its own."""

    def __init__(
        self,
        credentials: Credentials,
        stop: threading.Event,
        *,
        patience: float = PATIENCE,
        time_out: float = TIMEOUT,
    ) -> None:
        self._url = urlsplit(credentials.url)
        self._path = f"{self._url.path.rstrip('/')}/v1/launches/{credentials.launch}"
        self._time_out = time_out
        self._headers = {"Authorization": f"Bearer {credentials.token}", "Content-Type": "application/json"}
        self._stop = stop
        self._patience = patience
        self._connection: http.client.HTTPConnection | None = None

    def launch(self) -> dict[str, Any]:
        answer: dict[str, Any] = msgspec.json.decode(self._ask("GET", "", b"")[1])
        return answer

    def wait(self) -> dict[str, Any]:
        """Long poll of a warm runner: return the launch's description once a simulation takes this runner."""
        while "retry_after" in (answer := msgspec.json.decode(self._ask("GET", "/wait", b"")[1])):
            continue
        description: dict[str, Any] = answer
        return description

    def lease(self, worker: str, rate: float | None) -> LeaseAnswer:
        return msgspec.json.decode(self._post("lease", LeaseRequest(worker, rate)), type=LeaseAnswer)

    def report(
        self, header: ReportHeader, lines: memoryview | bytes, blobs: memoryview | bytes
    ) -> tuple[bool, LeaseAnswer]:
        status, answer = self._ask("POST", "/report", pack_report(header, lines, blobs))
        return status == 200, msgspec.json.decode(answer, type=LeaseAnswer)

    def heartbeat(self, leases: list[LeaseEntry]) -> LeaseStandings:
        return msgspec.json.decode(self._post("heartbeat", LeaseEntries(leases)), type=LeaseStandings)

    def leave(self, leases: list[LeaseEntry]) -> None:
        self._post("leave", LeaseEntries(leases))

    def report_death(self, death: DeathReport) -> None:
        self._post("death", death)

    def refuse_model(self, reason: str, status: str) -> None:
        self._post("refused", ModelRefusal(reason, status))

    def log(self, name: str, data: bytes) -> None:
        self._ask("POST", f"/logs?name={quote(name)}", data)

    def _post(self, verb: str, message: msgspec.Struct) -> bytes:
        return self._ask("POST", f"/{verb}", msgspec.json.encode(message))[1]

    def _ask(
        self, method: str, path: str, body: bytes | Iterable[bytes], headers: Mapping[str, str] = {}
    ) -> tuple[int, bytes]:
        """Send until there is a conclusive answer. Raises LaunchOver, RequestRejected or Unreachable.

        ``headers``: further ones, such as the length of a body that is iterated over, again for each attempt.
        """
        began = time.monotonic()
        pause = 0.0
        while True:
            if self._stop.is_set():
                # From now on model servers and evaluators die because the runner kills them: no report may blame the
                # model for it.
                raise LaunchOver("the runner stops")
            fresh = self._connection is None
            try:
                status, answer = self._send(method, path, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if not fresh and pause == 0.0:
                    pause = SHORTEST_PAUSE
                    continue  # the server had closed an idle connection: retry at once
                status, answer = 0, str(error).encode()
            if status in {200, 409}:
                return status, answer
            if status in {401, 410}:
                raise LaunchOver(f"HTTP {status}")
            if status and status < 500 and status not in {408, 429}:
                raise RequestRejected(f"HTTP {status}: {bytes(answer[:500]).decode(errors='replace')}")
            if time.monotonic() - began > self._patience:
                raise Unreachable(f"no answer for {self._patience:.0f} s: HTTP {status} {answer[:200]!r}")
            # With jitter, or all runners would return to a restarted service at the same time.
            pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, pause * 2))
            if self._stop.wait(pause * random.uniform(0.5, 1.0)):
                raise LaunchOver("the runner stops")

    def _send(
        self, method: str, path: str, body: bytes | Iterable[bytes], headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = connection(self._url, self._time_out)
        # A server that refuses a request may answer, and close, before it has read the body: its answer is there to be
        # read (RFC 9112, 9.6; urllib3 does the same). Without it a lost lease would look like an outage.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.request(method, self._path + path, body, {**self._headers, **headers})
        response = self._connection.getresponse()
        return response.status, response.read()

    def close(self) -> None:
        """Drop the connection; the next request makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def connection(url: SplitResult, time_out: float) -> http.client.HTTPConnection:
    """Open a connection to a URL's host and port."""
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    http_connection = kind(url.hostname or "127.0.0.1", url.port, timeout=time_out)
    http_connection.connect()
    http_connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return http_connection
