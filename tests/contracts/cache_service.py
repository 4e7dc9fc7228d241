"""Cache service fixtures: a server in a thread of the test process, and a client that sends arbitrary bytes."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from datasets.scs.__main__ import listen
from datasets.scs.authenticators import Authenticator, open_authenticator
from datasets.scs.config import Config, parse
from datasets.scs.server import CacheServer
from datasets.scs.store import Store

TOKEN = "good-token"
AUTHORIZED = f"Authorization: Bearer {TOKEN}\r\n"
TIMEOUT = 30.0


def cache_config(folder: Path, *buckets: dict[str, Any], **keys: Any) -> Config:
    """Return a configuration: buckets `public` and `private` by default, and two static tokens."""
    bucket_list = buckets or (
        {"Name": "public", "Public": True, "BucketQuota": "1Mi", "AllowNamespaces": ["team"]},
        {"Name": "private", "BucketQuota": "64Mi", "AllowNamespaces": ["team"]},
    )
    tokens = [{"Token": TOKEN, "Namespace": "team"}, {"Token": "stranger", "Namespace": "elsewhere"}]
    document = {"Bucket": list(bucket_list), "Reviewer": {"Kind": "static", "Tokens": tokens}, "ScrubRate": "0"} | keys
    return replace(parse(document, base=folder), directory=folder / "scs", port=0)


@dataclass
class Answer:
    """Response: status, headers by lower-case name, and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


class RawConnection:
    """Client connection that sends raw bytes and parses responses."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self._received = b""

    def send(self, raw: bytes) -> "RawConnection":
        """Send bytes unchanged."""
        self.sock.sendall(raw)
        return self

    def answer(self, *, head_only: bool = False) -> Answer:
        """Read the next response."""
        while b"\r\n\r\n" not in self._received:
            self._receive()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        status = int(first.split()[1])
        length = 0 if head_only or status in (100, 204, 304) else int(headers["content-length"])
        while len(self._received) < length:
            self._receive()
        body, self._received = self._received[:length], self._received[length:]
        return Answer(status, headers, body)

    def ended(self) -> bool:
        """Wait for the server to close; return whether no bytes came before."""
        return self._received == b"" and self.sock.recv(1) == b""

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()

    def _receive(self) -> None:
        data = self.sock.recv(1 << 16)
        if not data:
            raise ConnectionError(f"ended after {self._received[:200]!r}")
        self._received += data


class Cache:
    """A running cache service."""

    def __init__(self, config: Config, authenticator: Authenticator | None = None) -> None:
        self.config = config
        self.store = Store(config)
        listener = listen("127.0.0.1", 0, share=False)
        self.port: int = listener.getsockname()[1]
        self.server = CacheServer(
            config, self.store, authenticator or open_authenticator(config.authenticator), listener
        )
        self._thread = threading.Thread(target=self.server.run, name="scs")
        self._thread.start()
        self._connections: list[RawConnection] = []

    def connect(self) -> RawConnection:
        """Open a connection; `stop` closes it."""
        connection = RawConnection(self.port)
        self._connections.append(connection)
        return connection

    def request(self, method: str, target: str, body: bytes = b"", *, headers: str = AUTHORIZED) -> Answer:
        """Send a request on a new connection."""
        length = f"Content-Length: {len(body)}\r\n" if method == "PUT" else ""
        connection = self.connect()
        connection.send(f"{method} {target} HTTP/1.1\r\nHost: here\r\n{length}{headers}\r\n".encode("latin-1") + body)
        answer = connection.answer(head_only=method == "HEAD")
        connection.close()
        return answer

    def put(self, key: str, body: bytes, *, bucket: str = "private", headers: str = AUTHORIZED) -> Answer:
        """Store an object."""
        return self.request("PUT", f"/v1/objects/{bucket}/{key}", body, headers=headers)

    def get(self, key: str, *, bucket: str = "private", headers: str = AUTHORIZED) -> Answer:
        """Read an object."""
        return self.request("GET", f"/v1/objects/{bucket}/{key}", headers=headers)

    def stop(self) -> None:
        """Stop the server as SIGTERM does."""
        for connection in self._connections:
            connection.close()
        self.server.stop()
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()
        self.store.close()


@contextmanager
def running(config: Config, authenticator: Authenticator | None = None) -> Iterator[Cache]:
    """Run a cache service in the context."""
    cache = Cache(config, authenticator)
    try:
        yield cache
    finally:
        cache.stop()
