"""Kept HTTP connections to a few hosts, shared by threads; whatever goes wrong at the other end is one error.

As little of HTTP/1.1 as the cache's own protocol needs, because small files are read by the ten thousand: the standard
library's client takes three times the processor time, most of it to parse headers as if they were mail.
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

#: Idle connections kept to one host.
KEPT = 16
#: The rest of an answer that is read for the sake of its connection; a longer one is not worth it.
_REST = 64 << 10
#: The largest head of an answer, and the largest body that is sent along with the request's.
_HEAD = 64 << 10
_SMALL = 64 << 10
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])[ \r]")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*(?=\r\n)", re.IGNORECASE)
_CODING = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)
_PLAIN = re.compile(r"[!-~]+")


class Trouble(Exception):
    """The other end does not answer, or not as it should."""


class Closed(Trouble):
    """The other end closed the connection before it answered."""


class Answer:
    """What a host answered, and its body as it comes; ``length`` is None if nobody knows how much that is."""

    def __init__(self, line: "Line", status: int, length: int | None, kept: bool) -> None:
        self.status, self.length = status, length
        self._line, self._left, self._kept = line, length, kept

    def into(self, buffer: memoryview) -> int:
        """Fill the buffer as far as something is there; raise Trouble where the body ends."""
        if self._left is None:
            raise Trouble("it does not say how much comes")
        count = self._line.into(buffer[: self._left])
        self._left -= count
        return count

    def over(self) -> bool:
        """Read a short rest; whether the connection is good for another request."""
        if not self._kept or self._left is None or self._left > _REST:
            return False
        rest = memoryview(bytearray(self._left))
        try:
            while self._left:
                self.into(rest)
        except Trouble:
            return False
        return self._line.quiet()


class Line:
    """One connection."""

    def __init__(self, host: str, time_out: float) -> None:
        self._host, self._time_out = urlsplit(host).netloc, time_out
        self._sock, self._came = connected(host, time_out), b""

    def ask(self, verb: str, target: str, headers: Mapping[str, str], body: BinaryIO | None, size: int) -> Answer:
        """Send a request and read the head of its answer."""
        lines = [f"{verb} {target} HTTP/1.1", f"Host: {self._host}", *(f"{name}: {headers[name]}" for name in headers)]
        if body is not None:
            lines.append(f"Content-Length: {size}")
        head = "\r\n".join([*lines, "", ""]).encode("ascii")
        try:
            self._send(head, body, size)
        except (BrokenPipeError, ConnectionResetError):
            # who refuses a body may say so and hang up before having read it: the answer is worth more than the error
            return self._answer()
        except OSError as error:
            raise Trouble(_said(error)) from None
        return self._answer()

    def into(self, buffer: memoryview) -> int:
        """Fill the buffer as far as something is there; raise Trouble if nothing comes any more."""
        if self._came:
            count = min(len(self._came), len(buffer))
            buffer[:count] = self._came[:count]
            self._came = self._came[count:]
            return count
        try:
            count = self._sock.recv_into(buffer)
        except OSError as error:
            raise Trouble(f"the answer stopped: {_said(error)}") from None
        if not count:
            raise Trouble("the answer ended before its length")
        return count

    def quiet(self) -> bool:
        """Tell whether nothing came that was not asked for."""
        return not self._came

    def close(self) -> None:
        """Hang up."""
        self._sock.close()

    def _send(self, head: bytes, body: BinaryIO | None, size: int) -> None:
        if body is None or not size:
            self._sock.sendall(head)
        elif size <= _SMALL:
            self._sock.sendall(head + os.pread(body.fileno(), size, 0))
        else:
            self._sock.sendall(head)
            self._sock.sendfile(body, 0, size)

    def _answer(self) -> Answer:
        """Read heads until one is not only on the way to an answer (100 Continue)."""
        while True:
            head = self._head()
            if (first := _STATUS.match(head)) is None:
                raise Trouble("it does not speak HTTP/1.1")
            if (status := int(first[2])) >= 200:
                break
        lengths = _LENGTH.findall(head)
        length = int(lengths[0]) if len(lengths) == 1 and not _CODING.search(head) else None
        kept = first[1] == b"1" and not _CLOSE.search(head)
        return Answer(self, status, 0 if status in (204, 304) else length, kept)

    def _head(self) -> bytes:
        ends = time.monotonic() + self._time_out
        while (end := self._came.find(b"\r\n\r\n")) < 0:
            if len(self._came) > _HEAD or time.monotonic() > ends:
                raise Trouble("the answer's head does not end")
            try:
                data = self._sock.recv(_HEAD)
            except ConnectionResetError as error:
                raise Closed(_said(error)) from None
            except OSError as error:
                raise Trouble(_said(error)) from None
            if not data:
                raise Trouble("the answer's head is cut") if self._came else Closed("it hung up")
            self._came += data
        head, self._came = self._came[: end + 2], self._came[end + 4 :]
        return head


def connected(host: str, time_out: float) -> socket.socket:
    """Connect, over TLS for ``https:``."""
    parts = urlsplit(host)
    secure = parts.scheme == "https"
    try:
        sock = socket.create_connection((parts.hostname or "", parts.port or (443 if secure else 80)), time_out)
    except OSError as error:
        raise Trouble(_said(error)) from None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ssl.create_default_context().wrap_socket(sock, server_hostname=parts.hostname) if secure else sock
    except OSError as error:
        sock.close()
        raise Trouble(_said(error)) from None


class Wire:
    """Connections by host (``http://host:port``). A forked child shares none of its parent's."""

    def __init__(self, time_out: float) -> None:
        self._time_out = time_out
        self._lock = threading.Lock()
        self._idle: dict[tuple[int, str], list[Line]] = {}

    @contextmanager
    def exchange(
        self, host: str, verb: str, target: str, headers: Mapping[str, str], body: BinaryIO | None = None, size: int = 0
    ) -> Iterator[Answer]:
        """Send a request, with ``size`` bytes of a file as its body; yield the answer, of which all may be read.

        On a kept connection that turns out to be closed, it is sent once more on a new one: only what may be repeated
        goes this way.
        """
        if not _PLAIN.fullmatch(target):
            raise ValueError(f"not a request's target: {target!r}")
        with self._lock:
            line = idle.pop() if (idle := self._idle.get((os.getpid(), host))) else None
        reusable = False
        try:
            try:
                if line is None:
                    raise Closed
                answer = line.ask(verb, target, headers, body, size)
            except Closed:
                if line is not None:
                    line.close()
                line = Line(host, self._time_out)
                answer = line.ask(verb, target, headers, body, size)
            yield answer
            reusable = answer.over()
        finally:
            if line is not None and not (reusable and self._keep(host, line)):
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

    def _keep(self, host: str, line: Line) -> bool:
        with self._lock:
            idle = self._idle.setdefault((os.getpid(), host), [])
            if len(idle) < KEPT:
                idle.append(line)
                return True
        return False


class Token:
    """A bearer token in a file that may be replaced at any time (Kubernetes does so each hour)."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._read: tuple[tuple[int, int, int], str] | None = None

    def headers(self) -> Mapping[str, str]:
        """Return what authorises a request; nothing while there is no token."""
        if self._path is None:
            return {}
        try:
            told = self._path.stat()
            mark = (told.st_ino, told.st_mtime_ns, told.st_size)
            if self._read is None or self._read[0] != mark:
                self._read = mark, self._path.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return {}
        # of a token that no header can hold, an error further down might name it
        good = self._read[1].isascii() and self._read[1].isprintable()
        return {"Authorization": f"Bearer {self._read[1]}"} if good else {}


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
