"""Index proxy: what a confined package installer reaches of the network, the hosts of the operator's package indexes.

An HTTP proxy (RFC 9110, section 9.3.6, CONNECT; RFC 9112, section 3.2.2, absolute form) that runs in the process which
started the installer, and counts what it receives.
"""

import contextlib
import selectors
import socket
import threading
from collections.abc import Collection, Iterator
from urllib.parse import urlsplit

#: The most bytes of a request's head, and bytes moved at once.
HEAD, PIECE = 64 << 10, 256 << 10
#: Seconds that a connection to an index may take, and that it may be silent.
CONNECT, SILENCE = 30.0, 120.0
PORTS = {"http": 80, "https": 443}

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
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with self._tracked(client), contextlib.suppress(OSError, ValueError):
            client.settimeout(SILENCE)
            head, rest = _read_head(client)
            method, target, version = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
            address = _address(method, target)
            if address not in self._allowed:
                self.refused.add(address)
                client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            try:
                server = socket.create_connection(self._upstream or address, CONNECT)
            except OSError:
                client.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            with self._tracked(server):
                if self._upstream is not None:
                    server.sendall(head + b"\r\n\r\n" + rest)
                elif method == "CONNECT":
                    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    server.sendall(rest)
                else:
                    server.sendall(_origin_form(head, method, target, version) + rest)
                self._relay(client, server)

    @contextlib.contextmanager
    def _tracked(self, connection: socket.socket) -> Iterator[None]:
        """Have a connection closed with the proxy, and in any case."""
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

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        """Move bytes both ways until either side closes, is silent for too long, or too much was received."""
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while ready := selector.select(SILENCE):
                for key, _ in ready:
                    source: socket.socket = key.fileobj  # type: ignore[assignment]
                    data = source.recv(PIECE)
                    if not data or (source is server and not self._count(len(data))):
                        return
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


def _address(method: str, target: str) -> Address:
    parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
    if not parts.hostname:
        raise ValueError("not a request to a proxy")
    return parts.hostname, parts.port or PORTS["http" if method != "CONNECT" else "https"]


def _origin_form(head: bytes, method: str, target: str, version: str) -> bytes:
    """Return the head of a request to the server itself, for this request only."""
    parts = urlsplit(target)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = head.split(b"\r\n")[1:]
    dropped = (b"connection:", b"proxy-connection:", b"proxy-authorization:", b"keep-alive:", b"host:")
    kept = [line for line in lines if not line.lower().startswith(dropped)]
    first = f"{method} {path} {version}".encode("latin-1")
    host = f"Host: {parts.netloc.rpartition('@')[2]}".encode("latin-1")
    return b"\r\n".join([first, host, b"Connection: close", *kept]) + b"\r\n\r\n"
