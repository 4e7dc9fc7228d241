"""Kept HTTP connections to a few hosts, shared by threads; whatever goes wrong at the other end is one error."""

import http.client
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO
from urllib.parse import urlsplit

#: Idle connections kept to one host.
KEPT = 16
#: The rest of an answer that is read for the sake of its connection; a longer one is not worth it.
_REST = 64 << 10
#: How a kept connection shows that it was closed at the other end in the meantime.
_STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


class Trouble(Exception):
    """The other end does not answer, or not as it should."""


class Answer:
    """What a host answered; ``length`` is None if it did not say how much comes."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.status: int = response.status
        self.length: int | None = response.length

    def into(self, buffer: memoryview) -> int:
        """Fill the buffer as far as something is there; raise Trouble where the body ends."""
        try:
            count = self._response.readinto(buffer)
        except (OSError, http.client.HTTPException) as error:
            raise Trouble(f"the answer stopped: {_said(error)}") from None
        if not count:
            raise Trouble("the answer ended before its length")
        return count

    def over(self) -> bool:
        """Read a short rest; whether the connection is good for another request."""
        try:
            if not self._response.isclosed():
                self._response.read(_REST)
            return self._response.isclosed()
        except (OSError, http.client.HTTPException):
            return False


class Wire:
    """Connections by host (``http://host:port``). A forked child shares none of its parent's."""

    def __init__(self, time_out: float) -> None:
        self._time_out = time_out
        self._lock = threading.Lock()
        self._idle: dict[tuple[int, str], list[http.client.HTTPConnection]] = {}

    @contextmanager
    def exchange(
        self, host: str, verb: str, target: str, headers: Mapping[str, str], body: BinaryIO | None = None, size: int = 0
    ) -> Iterator[Answer]:
        """Send a request, with ``size`` bytes of a file as its body; yield the answer, of which all may be read.

        On a kept connection that turns out to be closed, it is sent once more on a new one: only what may be repeated
        goes this way.
        """
        line, response = self._sent(host, verb, target, headers, body, size)
        answer = Answer(response)
        reusable = False
        try:
            yield answer
            reusable = line.sock is not None and answer.over()
        finally:
            if reusable:
                self._keep(host, line)
            else:
                response.close()
                line.close()

    def forget(self, host: str) -> None:
        """Close what is idle to a host."""
        with self._lock:
            idle = self._idle.pop((os.getpid(), host), [])
        for line in idle:
            line.close()

    def close(self) -> None:
        """Close whatever is idle."""
        with self._lock:
            mine = [host for pid, host in self._idle if pid == os.getpid()]
        for host in mine:
            self.forget(host)

    def _sent(
        self, host: str, verb: str, target: str, headers: Mapping[str, str], body: BinaryIO | None, size: int
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        line, kept = self._line(host)
        try:
            return line, self._ask(line, verb, target, headers, body, size)
        except _STALE as error:
            line.close()
            if not kept:
                raise Trouble(_said(error)) from None
        except (OSError, http.client.HTTPException) as error:
            line.close()
            raise Trouble(_said(error)) from None
        line = self._new(host)
        try:
            return line, self._ask(line, verb, target, headers, body, size)
        except (OSError, http.client.HTTPException) as error:
            line.close()
            raise Trouble(_said(error)) from None

    def _ask(
        self,
        line: http.client.HTTPConnection,
        verb: str,
        target: str,
        headers: Mapping[str, str],
        body: BinaryIO | None,
        size: int,
    ) -> http.client.HTTPResponse:
        line.putrequest(verb, target, skip_accept_encoding=True)
        for name, value in headers.items():
            line.putheader(name, value)
        if body is not None:
            line.putheader("Content-Length", str(size))
        line.endheaders()
        if body is not None and size:
            try:
                line.sock.sendfile(body, 0, size)
            except _STALE:
                # who refuses a body may say so and close before having read it: the answer is worth more than the error
                return line.getresponse()
        return line.getresponse()

    def _line(self, host: str) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            if idle := self._idle.get((os.getpid(), host)):
                return idle.pop(), True
        return self._new(host), False

    def _new(self, host: str) -> http.client.HTTPConnection:
        parts = urlsplit(host)
        name = parts.hostname or ""
        if parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(name, parts.port, timeout=self._time_out, context=context)
        return http.client.HTTPConnection(name, parts.port, timeout=self._time_out)

    def _keep(self, host: str, line: http.client.HTTPConnection) -> None:
        with self._lock:
            idle = self._idle.setdefault((os.getpid(), host), [])
            if len(idle) < KEPT:
                idle.append(line)
                return
        line.close()


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
