"""One client's connection: what it has asked for, as the parser tells, and where its answer stands."""

import socket
from collections import deque
from enum import Enum, auto

import httptools

from datasets.scs.config import Limits
from datasets.scs.open_files import File

#: Headers that mean something here; others are not kept. Twice the same of these is a contradiction (RFC 9110, 5.3).
SINGLE = frozenset(
    {b"host", b"authorization", b"range", b"content-length", b"transfer-encoding", b"if-range", b"expect"}
    | {b"content-digest", b"if-modified-since", b"if-unmodified-since", b"content-encoding", b"content-range"}
)
LISTS = frozenset({b"if-match", b"if-none-match", b"connection"})
#: What only a browser sends: no page has anything to do here, see docs/scs.md.
BROWSERS = frozenset({b"origin", b"sec-fetch-site"})
_KNOWN = SINGLE | LISTS | BROWSERS


class State(Enum):
    """Who has the next move on a connection."""

    READING = auto()  # the client, with a request
    WRITING = auto()  # the client, by taking more of an answer
    AWAY = auto()  # a thread of ours; the loop leaves the connection alone
    LINGERING = auto()  # the client, by hanging up: it is refused, and what it still sends is thrown away
    CLOSED = auto()


class Request:
    """One request. ``fault`` is the status it is refused with already; ``whole`` once its body has come."""

    # defaults of the class: one is made for every request, and most keep most of them
    method = b""
    target = b""
    length: int | None = None
    fault = 0
    keep_alive = False
    whole = False
    unreviewed = False
    looks = 0
    arrived = 0.0

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.body: list[bytes] = []


class Connection:
    """A socket, its parser, and the answer under way: first ``out``, then the file from ``at`` to ``end``."""

    __slots__ = (
        "_current",
        "_fed",
        "_head",
        "_limits",
        "_now",
        "asked",
        "at",
        "closing",
        "deadline",
        "discarded",
        "end",
        "fd",
        "file",
        "held",
        "mask",
        "method",
        "out",
        "parser",
        "partial",
        "since",
        "sock",
        "state",
        "unread",
        "warm",
    )

    def __init__(self, sock: socket.socket, limits: Limits) -> None:
        self.sock, self.fd, self._limits = sock, sock.fileno(), limits
        self.state = State.READING
        self.mask = 0
        self.asked: deque[Request] = deque()
        self.out: bytes | memoryview = b""
        self.file = -1
        self.held: File | None = None
        self.at = self.end = self.warm = 0
        self.closing = self.unread = self.partial = False
        self.deadline = self.since = 0.0
        self.discarded = 0
        self.method = b""
        self._current = Request()
        self._head = self._fed = 0
        self.parser = httptools.HttpRequestParser(self)

    def feed(self, data: bytes, now: float) -> None:
        """Parse what has come; requests appear in ``asked`` as soon as their heads are complete."""
        self._now = now
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._last().keep_alive = False  # an upgrade may be declined by just answering (RFC 9110, 7.8)
        except httptools.HttpParserError:
            self._refuse(self._current.fault or 400)
        if self._current.fault in (414, 431):
            self._refuse(self._current.fault)
        self.partial = not self.asked and self._head > 0
        # the parser tells of a header only when it is complete, so what it holds back is counted here
        self._fed = self._fed + len(data) if self.partial else 0
        if self._fed > self._limits.head + self._limits.target:
            self._refuse(431)
            self.partial = False

    def at_rest(self) -> bool:
        """Tell whether all that came was whole requests, so that what comes next begins one."""
        return not self._head and not self.asked

    def underway(self) -> bool:
        """Tell whether a part of a request has come beyond those asked."""
        return self._head > 0

    def let_go(self) -> None:
        """Have no more to do with the file that was sent."""
        self.file, self.held = -1, None

    def renew(self) -> None:
        """Begin to parse anew, after the rest of a body was read past the parser."""
        self._current, self._head = Request(), 0
        self.parser = httptools.HttpRequestParser(self)

    def _last(self) -> Request:
        return self.asked[-1] if self.asked else self._current

    def _refuse(self, status: int) -> None:
        """Answer whatever could not be parsed, after all that could be."""
        if self.asked and not self.asked[-1].whole:
            self.asked[-1].fault = status  # its body is what cannot be parsed
            return
        request = Request()
        request.fault = status
        self.asked.append(request)

    # -- what the parser calls

    def on_message_begin(self) -> None:
        self._current, self._head = Request(), 1

    def on_url(self, url: bytes) -> None:
        request = self._current
        request.target = request.target + url if request.target else url
        self._head += len(url)
        if len(request.target) > self._limits.target:
            request.fault, request.target = 414, b"/"

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value) + 4
        request = self._current
        if self._head > self._limits.head + self._limits.target:
            request.fault, request.headers = request.fault or 431, {}
            return
        name = name.lower()
        if name in _KNOWN:
            headers = request.headers
            if name in headers:
                if name in LISTS:
                    value = headers[name] + b", " + value
                else:
                    request.fault = request.fault or 400
            headers[name] = value

    def on_headers_complete(self) -> None:
        request, parser = self._current, self.parser
        headers = request.headers
        request.method = parser.get_method()
        # asking for the version costs more than all the rest, and only these two ever need it
        request.keep_alive = parser.should_keep_alive() and (
            b"connection" not in headers or parser.get_http_version() == "1.1"
        )
        length = headers.get(b"content-length")
        if length is not None:
            if not length.isdigit() or len(length) > 19:
                request.fault = request.fault or 400
            else:
                request.length = int(length)
        chunked = b"transfer-encoding" in headers
        if (chunked and length is not None) or (b"host" not in headers and parser.get_http_version() == "1.1"):
            request.fault = request.fault or 400
        if request.method != b"PUT" and (request.length or chunked):
            request.fault = request.fault or 400
        request.arrived = self._now
        self.asked.append(request)

    def on_body(self, body: bytes) -> None:
        if self._current.method == b"PUT" and not self._current.fault:
            self._current.body.append(body)

    def on_message_complete(self) -> None:
        self._current.whole = True
        self._head = 0
