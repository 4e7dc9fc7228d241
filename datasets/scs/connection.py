"""Client connection: the parser's requests, and the progress of the current response."""

import socket
from collections import deque
from enum import Enum, auto

import httptools

from datasets.scs.config import Limits
from datasets.scs.object_request import KNOWN, LISTS, ObjectRequest
from datasets.scs.open_files import OpenFile
from datasets.scs.requests import BodyPart


class ConnectionState(Enum):
    """State of a connection: which side acts next."""

    READING = auto()  # the client sends a request
    WRITING = auto()  # the client reads more of a response
    OFF_LOOP = auto()  # a thread owns the connection; the loop does not touch it
    LINGERING = auto()  # the client closes: its request was refused, and its remaining bytes are discarded
    CLOSED = auto()


class ClientConnection:
    """Socket, parser, and the response in progress: first ``out``, then the file from ``offset`` to ``end``."""

    __slots__ = (
        "_current",
        "_fed",
        "_head",
        "_limits",
        "_now",
        "closing",
        "deadline",
        "discarded",
        "end",
        "fd",
        "file",
        "mask",
        "method",
        "offset",
        "open_file",
        "out",
        "parser",
        "partial",
        "requests",
        "sock",
        "started_at",
        "state",
        "trusted_until",
        "unread",
        "unsent",
        "verified",
    )

    def __init__(self, sock: socket.socket, limits: Limits) -> None:
        self.sock, self.fd, self._limits = sock, sock.fileno(), limits
        self.state = ConnectionState.READING
        self.mask = 0
        self.requests: deque[ObjectRequest] = deque()
        self.out: bytes | memoryview = b""
        self.file = -1
        self.open_file: OpenFile | None = None
        #: The file is verified up to ``verified``, and is assumed to stay intact until ``trusted_until``.
        self.offset = self.end = self.verified = 0
        self.trusted_until = 0.0
        #: Request and body of the response as long as no byte of it was sent: another response may replace it.
        self.unsent: tuple[ObjectRequest, BodyPart] | None = None
        self.closing = self.unread = self.partial = False
        self.deadline = self.started_at = 0.0
        self.discarded = 0
        self.method = b""
        self._current = ObjectRequest()
        self._head = self._fed = 0
        self.parser = httptools.HttpRequestParser(self)

    def feed(self, data: bytes, now: float) -> None:
        """Parse received bytes; a request is appended to ``requests`` when its head is complete."""
        self._now = now
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._last().keep_alive = False  # a server may ignore an upgrade (RFC 9110, 7.8)
        except httptools.HttpParserError:
            self._refuse(self._current.fault or 400)
        if self._current.fault in (414, 431):
            self._refuse(self._current.fault)
        self.partial = not self.requests and self._head > 0
        # the parser reports a header only when it is complete, so bytes that it holds back are counted here
        self._fed = self._fed + len(data) if self.partial else 0
        if self._fed > self._limits.head + self._limits.target:
            self._refuse(431)
            self.partial = False

    def between_requests(self) -> bool:
        """Tell whether only complete requests have been received and answered: the next byte begins a request."""
        return not self._head and not self.requests

    def mid_request(self) -> bool:
        """Tell whether part of a request beyond ``requests`` has been received."""
        return self._head > 0

    def release_file(self) -> None:
        """Drop the reference to the file that was sent."""
        self.file, self.open_file = -1, None

    def reset_parser(self) -> None:
        """Reset the parser, after the rest of a body was read past it."""
        self._current, self._head = ObjectRequest(), 0
        self.parser = httptools.HttpRequestParser(self)

    def _last(self) -> ObjectRequest:
        return self.requests[-1] if self.requests else self._current

    def _refuse(self, status: int) -> None:
        """Queue a refusal of unparsable bytes, behind the requests that were parsed."""
        if self.requests and not self.requests[-1].complete:
            self.requests[-1].fault = status  # the unparsable bytes are its body
            return
        request = ObjectRequest()
        request.fault = status
        self.requests.append(request)

    # -- callbacks of the parser

    def on_message_begin(self) -> None:
        self._current, self._head = ObjectRequest(), 1

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
        if name in KNOWN:
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
        # get_http_version costs more than the rest of this function, and only these two cases need it
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
        request.arrived_at = self._now
        self.requests.append(request)

    def on_body(self, body: bytes) -> None:
        if self._current.method == b"PUT" and not self._current.fault:
            self._current.body.append(body)

    def on_message_complete(self) -> None:
        self._current.complete = True
        self._head = 0
