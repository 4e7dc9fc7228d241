"""HTTP connection pool: keep-alive connections to a few hosts, shared by threads; all failures raise TransportError.

A subset of HTTP/1.1 that suffices for the cache service, because small files are read in tens of thousands: the
standard library's client takes three times the CPU time, most of it to parse headers as e-mail headers.
"""

import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

#: Idle connections kept per host.
MAX_IDLE = 16
#: Bytes of an unread body up to which it is drained to reuse the connection; beyond it, the connection is closed.
_MAX_DRAIN = 64 << 10
#: Bytes of a response head at most, and of a request body that is sent in one call with the request head.
_HEAD = 64 << 10
_SMALL = 64 << 10
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])[ \r]")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*(?=\r\n)", re.IGNORECASE)
_CODING = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)
_PLAIN = re.compile(r"[!-~]+")


class TransportError(Exception):
    """The server is unreachable, too slow, or violates the protocol."""


class ConnectionClosed(TransportError):
    """The server closed the connection before it responded."""


class HttpResponse:
    """A response with a streamed body; ``length`` in bytes, None if the response does not declare it."""

    def __init__(self, connection: "PooledConnection", status: int, length: int | None, keep_alive: bool) -> None:
        self.status, self.length = status, length
        self._connection, self._remaining, self._keep_alive = connection, length, keep_alive

    def read_into(self, buffer: memoryview) -> int:
        """Read available body bytes into the buffer; return their number. Raise TransportError at the end."""
        if self._remaining is None:
            raise TransportError("the response has no Content-Length")
        count = self._connection.read_into(buffer[: self._remaining])
        self._remaining -= count
        return count

    def drain(self) -> bool:
        """Read a short rest of the body; return whether the connection can be reused."""
        if not self._keep_alive or self._remaining is None or self._remaining > _MAX_DRAIN:
            return False
        rest = memoryview(bytearray(self._remaining))
        try:
            while self._remaining:
                self.read_into(rest)
        except TransportError:
            return False
        return self._connection.is_idle()


class PooledConnection:
    """A connection to one host."""

    def __init__(self, host: str, time_out: float) -> None:
        self._host, self._time_out = urlsplit(host).netloc, time_out
        self._sock, self._received = connect(host, time_out), b""

    def request(
        self, verb: str, target: str, headers: Mapping[str, str], body: BinaryIO | None, size: int
    ) -> HttpResponse:
        """Send a request and read the head of its response."""
        lines = [f"{verb} {target} HTTP/1.1", f"Host: {self._host}", *(f"{name}: {headers[name]}" for name in headers)]
        if body is not None:
            lines.append(f"Content-Length: {size}")
        head = "\r\n".join([*lines, "", ""]).encode("ascii")
        try:
            self._send(head, body, size)
        except (BrokenPipeError, ConnectionResetError):
            # a server that refuses a body may respond and close before it has read the body: read that response
            return self._read_response()
        except OSError as error:
            raise TransportError(_describe(error)) from None
        return self._read_response()

    def read_into(self, buffer: memoryview) -> int:
        """Read available bytes into the buffer; return their number. Raise TransportError at the end of the stream."""
        if self._received:
            count = min(len(self._received), len(buffer))
            buffer[:count] = self._received[:count]
            self._received = self._received[count:]
            return count
        try:
            count = self._sock.recv_into(buffer)
        except OSError as error:
            raise TransportError(f"the response broke off: {_describe(error)}") from None
        if not count:
            raise TransportError("the response ended before its Content-Length")
        return count

    def is_idle(self) -> bool:
        """Tell whether no unexpected bytes were received."""
        return not self._received

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def _send(self, head: bytes, body: BinaryIO | None, size: int) -> None:
        if body is None or not size:
            self._sock.sendall(head)
        elif size <= _SMALL:
            self._sock.sendall(head + os.pread(body.fileno(), size, 0))
        else:
            self._sock.sendall(head)
            self._sock.sendfile(body, 0, size)

    def _read_response(self) -> HttpResponse:
        """Read heads until a final one; interim responses (100 Continue) are skipped."""
        while True:
            head = self._read_head()
            if (status_line := _STATUS.match(head)) is None:
                raise TransportError("the response is not HTTP/1.1")
            if (status := int(status_line[2])) >= 200:
                break
        lengths = _LENGTH.findall(head)
        length = int(lengths[0]) if len(lengths) == 1 and not _CODING.search(head) else None
        keep_alive = status_line[1] == b"1" and not _CLOSE.search(head)
        return HttpResponse(self, status, 0 if status in (204, 304) else length, keep_alive)

    def _read_head(self) -> bytes:
        deadline = time.monotonic() + self._time_out
        while (end := self._received.find(b"\r\n\r\n")) < 0:
            if len(self._received) > _HEAD or time.monotonic() > deadline:
                raise TransportError("the response head is too long or too slow")
            try:
                data = self._sock.recv(_HEAD)
            except ConnectionResetError as error:
                raise ConnectionClosed(_describe(error)) from None
            except OSError as error:
                raise TransportError(_describe(error)) from None
            if not data:
                raise (
                    TransportError("the response head is truncated")
                    if self._received
                    else ConnectionClosed("the connection was closed")
                )
            self._received += data
        head, self._received = self._received[: end + 2], self._received[end + 4 :]
        return head


def connect(host: str, time_out: float) -> socket.socket:
    """Open a TCP connection with TCP_NODELAY, with TLS for ``https:``."""
    parts = urlsplit(host)
    secure = parts.scheme == "https"
    try:
        sock = socket.create_connection((parts.hostname or "", parts.port or (443 if secure else 80)), time_out)
    except OSError as error:
        raise TransportError(_describe(error)) from None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ssl.create_default_context().wrap_socket(sock, server_hostname=parts.hostname) if secure else sock
    except OSError as error:
        sock.close()
        raise TransportError(_describe(error)) from None


class ConnectionPool:
    """Idle connections by host (``http://host:port``). A forked child does not use its parent's connections."""

    def __init__(self, time_out: float) -> None:
        self._time_out = time_out
        self._lock = threading.Lock()
        self._idle: dict[tuple[int, str], list[PooledConnection]] = {}

    @contextmanager
    def exchange(
        self, host: str, verb: str, target: str, headers: Mapping[str, str], body: BinaryIO | None = None, size: int = 0
    ) -> Iterator[HttpResponse]:
        """Send a request, with ``size`` bytes of a file as its body; yield the response.

        If an idle connection turns out to be closed, the request is sent once more on a new connection, so requests
        must be idempotent.
        """
        if not _PLAIN.fullmatch(target):
            raise ValueError(f"invalid request target: {target!r}")
        with self._lock:
            connection = idle.pop() if (idle := self._idle.get((os.getpid(), host))) else None
        reusable = False
        try:
            try:
                if connection is None:
                    raise ConnectionClosed
                response = connection.request(verb, target, headers, body, size)
            except ConnectionClosed:
                if connection is not None:
                    connection.close()
                connection = PooledConnection(host, self._time_out)
                response = connection.request(verb, target, headers, body, size)
            yield response
            reusable = response.drain()
        finally:
            if connection is not None and not (reusable and self._return_to_pool(host, connection)):
                connection.close()

    def forget(self, host: str) -> None:
        """Close the idle connections to a host."""
        with self._lock:
            idle = self._idle.pop((os.getpid(), host), [])
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            hosts = [host for pid, host in self._idle if pid == os.getpid()]
        for host in hosts:
            self.forget(host)

    def _return_to_pool(self, host: str, connection: PooledConnection) -> bool:
        with self._lock:
            idle = self._idle.setdefault((os.getpid(), host), [])
            if len(idle) < MAX_IDLE:
                idle.append(connection)
                return True
        return False


class BearerToken:
    """A bearer token in a file that may be replaced at any time (Kubernetes rotates tokens hourly)."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._cached: tuple[tuple[int, int, int], str] | None = None

    def headers(self) -> Mapping[str, str]:
        """Return the Authorization header; empty if there is no readable token."""
        if self._path is None:
            return {}
        try:
            stat = self._path.stat()
            version = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if self._cached is None or self._cached[0] != version:
                self._cached = version, self._path.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return {}
        # an error about a token that is not a valid header value could disclose it, so such a token is not sent
        valid = self._cached[1].isascii() and self._cached[1].isprintable()
        return {"Authorization": f"Bearer {self._cached[1]}"} if valid else {}


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
