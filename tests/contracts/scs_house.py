"""A cache service in a thread of the test's own process, and a client that sends any bytes whatever."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from datasets.scs.__main__ import listen
from datasets.scs.authenticators import TokenReviewer, open_reviewer
from datasets.scs.config import Config, parse
from datasets.scs.server import Server
from datasets.scs.store import Store

GOOD = "good-token"
AUTHORIZED = f"Authorization: Bearer {GOOD}\r\n"
PATIENCE = 30.0


def told(folder: Path, *buckets: dict[str, Any], **more: Any) -> Config:
    """Return a configuration: buckets `public` and `private` unless others are given, and three static tokens."""
    known = buckets or (
        {"Name": "public", "Public": True, "BucketQuota": "1Mi", "AllowNamespaces": ["team"]},
        {"Name": "private", "BucketQuota": "64Mi", "AllowNamespaces": ["team"]},
    )
    tokens = [{"Token": GOOD, "Namespace": "team"}, {"Token": "stranger", "Namespace": "elsewhere"}]
    document = {"Bucket": list(known), "Reviewer": {"Kind": "static", "Tokens": tokens}, "ScrubRate": "0"} | more
    return replace(parse(document, base=folder), directory=folder / "scs", port=0)


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


class Line:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._came = b""

    def send(self, raw: bytes) -> "Line":
        """Send bytes as they are."""
        self.sock.sendall(raw)
        return self

    def answer(self, *, head_only: bool = False) -> Answer:
        """Read one answer."""
        while b"\r\n\r\n" not in self._came:
            self._more()
        head, _, self._came = self._came.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        status = int(first.split()[1])
        length = 0 if head_only or status in (100, 204, 304) else int(headers["content-length"])
        while len(self._came) < length:
            self._more()
        body, self._came = self._came[:length], self._came[length:]
        return Answer(status, headers, body)

    def ended(self) -> bool:
        """Wait for the other side's end; tell whether nothing came before it."""
        return self._came == b"" and self.sock.recv(1) == b""

    def close(self) -> None:
        """Hang up."""
        self.sock.close()

    def _more(self) -> None:
        data = self.sock.recv(1 << 16)
        if not data:
            raise ConnectionError(f"ended after {self._came[:200]!r}")
        self._came += data


class Cache:
    """A running cache service."""

    def __init__(self, config: Config, reviewer: TokenReviewer | None = None) -> None:
        self.config = config
        self.store = Store(config)
        listener = listen("127.0.0.1", 0, share=False)
        self.port: int = listener.getsockname()[1]
        self.server = Server(config, self.store, reviewer or open_reviewer(config.reviewer), listener)
        self._thread = threading.Thread(target=self.server.run, name="scs")
        self._thread.start()
        self._lines: list[Line] = []

    def line(self) -> Line:
        """Connect."""
        made = Line(self.port)
        self._lines.append(made)
        return made

    def ask(self, method: str, target: str, body: bytes = b"", *, headers: str = AUTHORIZED) -> Answer:
        """Send one request on a connection of its own."""
        length = f"Content-Length: {len(body)}\r\n" if method == "PUT" else ""
        line = self.line()
        line.send(f"{method} {target} HTTP/1.1\r\nHost: here\r\n{length}{headers}\r\n".encode("latin-1") + body)
        answer = line.answer(head_only=method == "HEAD")
        line.close()
        return answer

    def put(self, key: str, body: bytes, *, bucket: str = "private", headers: str = AUTHORIZED) -> Answer:
        """Store an object."""
        return self.ask("PUT", f"/v1/objects/{bucket}/{key}", body, headers=headers)

    def get(self, key: str, *, bucket: str = "private", headers: str = AUTHORIZED) -> Answer:
        """Read an object."""
        return self.ask("GET", f"/v1/objects/{bucket}/{key}", headers=headers)

    def stop(self) -> None:
        """End it as SIGTERM does."""
        for line in self._lines:
            line.close()
        self.server.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self.store.close()


@contextmanager
def running(config: Config, reviewer: TokenReviewer | None = None) -> Iterator[Cache]:
    """Run one for a while."""
    cache = Cache(config, reviewer)
    try:
        yield cache
    finally:
        cache.stop()
