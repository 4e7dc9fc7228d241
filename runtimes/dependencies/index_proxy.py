"""Index proxy: what a confined package installer reaches of the network, the hosts of the operator's package indexes.

An HTTP proxy (RFC 9110, section 9.3.6, CONNECT; RFC 9112, section 3.2.2, absolute form) that runs in the process which
started the installer, and counts what it receives. A connection carries one request: what follows it would reach the
operator's own proxy, if there is one, without having been checked. Requests are parsed strictly and written again, so
that no other reading of them leads elsewhere.
"""

import contextlib
import re
import selectors
import socket
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

#: The most bytes of a request's head, and bytes moved at once.
HEAD, PIECE = 64 << 10, 256 << 10
#: Seconds that a connection to an index may take, and that it may be silent.
CONNECT, SILENCE = 30.0, 120.0
PORTS = {"http": 80, "https": 443}
#: Connections at once, and addresses that are remembered as refused.
CONNECTIONS, REFUSED = 128, 10

_REQUEST = re.compile(r"(CONNECT|GET|HEAD) ([!-~]+) HTTP/1\.[01]")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_AUTHORITY = re.compile(r"([A-Za-z0-9.-]+)(?::([0-9]{1,5}))?|\[([0-9A-Fa-f:.]+)\](?::([0-9]{1,5}))?")
#: Headers that concern a connection, or announce a body, and the host, which follows from the target.
_DROPPED = {"connection", "proxy-connection", "proxy-authorization", "keep-alive", "te", "upgrade", "expect", "host"}
_BODY = {"content-length", "transfer-encoding", "trailer"}

Address = tuple[str, int]


def addresses(urls: Collection[str]) -> frozenset[Address]:
    """Return host and port of each URL. Raise ValueError for a URL that is not http or https."""
    found = set()
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in PORTS or not parts.hostname:
            raise ValueError(f"{url!r} is not an http or https URL")
        found.add((parts.hostname, parts.port or PORTS[parts.scheme]))
    return frozenset(found)


class IndexProxy:
    """Forwards connections from a listener to the allowed addresses.

    ``upstream``: address of a proxy that leads out of the operator's network, or None. ``largest``: bytes received in
    all; beyond them every connection is closed, and ``exceeded`` is set. ``refused`` are the addresses that were asked
    for and are not allowed.
    """

    def __init__(
        self, listener: socket.socket, allowed: Collection[Address], *, largest: int, upstream: Address | None = None
    ) -> None:
        self._listener = listener
        self._allowed = frozenset(allowed)
        self._upstream = upstream
        self._left = largest
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._places = threading.BoundedSemaphore(CONNECTIONS)
        self.exceeded = False
        self.refused: set[Address] = set()
        threading.Thread(target=self._accept, name="index-proxy", daemon=True).start()

    def close(self) -> None:
        """Close the listener and all connections."""
        with self._lock:
            self._closed = True
            connections = [self._listener, *self._open]
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while True:
            self._places.acquire()
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with self._tracked(client), contextlib.suppress(OSError, ValueError):
                client.settimeout(SILENCE)
                try:
                    request, rest = _read_request(client)
                except ValueError:
                    client.sendall(_answer("400 Bad Request"))
                else:
                    self._forward(client, request, rest)
        finally:
            self._places.release()

    def _forward(self, client: socket.socket, request: "_Request", rest: bytes) -> None:
        if request.address not in self._allowed:
            if len(self.refused) < REFUSED:
                self.refused.add(request.address)
            client.sendall(_answer("403 Forbidden"))
            return
        try:
            server = socket.create_connection(self._upstream or request.address, CONNECT)
        except OSError:
            client.sendall(_answer("502 Bad Gateway"))
            return
        with self._tracked(server):
            tunnel = request.method == "CONNECT"
            if self._upstream is not None:
                server.sendall(request.to_proxy())
            elif tunnel:
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                server.sendall(request.to_origin())
            if tunnel and self._upstream is not None and not self._pass_answer(client, server):
                return
            if tunnel:
                server.sendall(rest)
            self._relay(client, server, both=tunnel)

    def _pass_answer(self, client: socket.socket, server: socket.socket) -> bool:
        """Pass the answer of the operator's proxy to a CONNECT; return whether there is a tunnel now.

        Until then nothing more is sent to that proxy, which would read it as another request.
        """
        head, rest = _read_head(server)
        client.sendall(head + b"\r\n\r\n" + rest)
        return re.match(rb"HTTP/1\.[01] 2[0-9][0-9]( |\r|$)", head) is not None

    @contextlib.contextmanager
    def _tracked(self, connection: socket.socket) -> Iterator[None]:
        with self._lock:
            if self._closed:
                connection.close()
            self._open.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _relay(self, client: socket.socket, server: socket.socket, *, both: bool) -> None:
        """Move bytes until either side closes, is silent for too long, or too much was received.

        Without ``both``, what the client sends is read and dropped.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while ready := selector.select(SILENCE):
                for key, _ in ready:
                    source: socket.socket = key.fileobj  # type: ignore[assignment]
                    data = source.recv(PIECE)
                    if not data or (source is server and not self._count(len(data))):
                        return
                    if both or source is server:
                        key.data.sendall(data)

    def _count(self, length: int) -> bool:
        with self._lock:
            self._left -= length
            self.exceeded = self.exceeded or self._left < 0
            return not self.exceeded


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """Return a request's head without the empty line, and what was received after it."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(HEAD)
        if not piece or len(data) + len(piece) > HEAD:
            raise ValueError("no request")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def _answer(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


@dataclass(frozen=True, slots=True)
class _Request:
    """A request to a proxy. ``path``: with the query, of a GET or HEAD."""

    method: str
    address: Address
    authority: str
    path: str
    headers: tuple[str, ...]

    def to_proxy(self) -> bytes:
        """Return the request as another proxy gets it."""
        if self.method == "CONNECT":
            target = f"{_bracketed(self.address[0])}:{self.address[1]}"
            return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
        return self._written(f"http://{self.authority}{self.path}")

    def to_origin(self) -> bytes:
        """Return the request as the server itself gets it."""
        return self._written(self.path)

    def _written(self, target: str) -> bytes:
        first = (f"{self.method} {target} HTTP/1.1", f"Host: {self.authority}", "Connection: close")
        return ("\r\n".join([*first, *self.headers]) + "\r\n\r\n").encode("latin-1")


def _read_request(client: socket.socket) -> tuple[_Request, bytes]:
    """Return a request, and what was received after it. Raise ValueError for what is not exactly one."""
    head, rest = _read_head(client)
    first, *lines = head.decode("latin-1").split("\r\n")
    request = _REQUEST.fullmatch(first)
    headers = [_HEADER.fullmatch(line) for line in lines]
    if request is None or not all(headers):
        raise ValueError("not a request to a proxy")
    named = [(match.group(1).lower(), match.group(0)) for match in headers if match]
    method, target = request.group(1), request.group(2)
    authority, path, scheme = target, "", "https"
    if method != "CONNECT":
        scheme, separator, rest_of_target = target.partition("://")
        authority, slash, path = rest_of_target.partition("/")
        path = slash + path or "/"
        if scheme.lower() != "http" or not separator or {name for name, _ in named} & _BODY:
            raise ValueError("not a request to a proxy for an http address without a body")
    match = _AUTHORITY.fullmatch(authority)
    if match is None or "#" in path or "\\" in path:
        raise ValueError("not the address of a host")
    host = (match.group(1) or match.group(3)).lower()
    port = int(match.group(2) or match.group(4) or PORTS[scheme.lower()])
    kept = tuple(line for name, line in named if name not in _DROPPED)
    return _Request(method, (host, port), authority, path, kept), rest


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
