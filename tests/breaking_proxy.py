"""TCP proxy that breaks connections at planned points: after some bytes to or from the server, or before a response."""

import re
import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

#: A request line at the beginning of what a client sends.
_REQUEST = re.compile(rb"(?:GET|HEAD|POST|PUT|PATCH|DELETE) \S+ HTTP/1\.1\r\n")
#: SO_LINGER with zero seconds: `close` sends a reset, as a router that has forgotten the connection does.
_RESET = struct.pack("ii", 1, 0)


@dataclass
class _Break:
    """A planned break: of all connections after ``count`` more, or of a request's connection before its response."""

    sends: bool
    count: int = 0
    request: bytes | None = None


class BreakingProxy:
    """A proxy on loopback in front of a TCP port. Breaks happen one after the other, in the order of their planning."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.sent, self.received, self.breaks = 0, 0, 0
        #: Request lines in the order of their arrival, such as `POST /v1/simulations`.
        self.requests: list[str] = []
        self._plan: deque[_Break] = deque()
        self._ends: set[socket.socket] = set()
        self._held_at: int | None = None
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, name="breaking proxy", daemon=True)
        self._thread.start()

    def break_after_sending(self, count: int, times: int = 1) -> None:
        """Break all connections when ``count`` more bytes have gone to the server; then plan the next one."""
        self._plan.extend(_Break(True, count) for _ in range(times))

    def break_after_receiving(self, count: int, times: int = 1) -> None:
        """Break all connections when ``count`` more bytes have come from the server; then plan the next one."""
        self._plan.extend(_Break(False, count) for _ in range(times))

    def lose_response(self, request: str) -> None:
        """Break the connection of a request that begins so once the server has answered it, and forward no byte."""
        self._plan.append(_Break(False, request=request.encode()))

    def hold_after_sending(self, count: int) -> None:
        """Forward nothing more to the server once ``count`` bytes have gone to it, until ``release``."""
        self._held_at = self.sent + count

    def release(self) -> None:
        """Forward again."""
        self._held_at = None
        self._released.set()

    @property
    def holds(self) -> bool:
        """Whether the bytes are sent after which it holds."""
        return self._held_at is not None and self.sent >= self._held_at

    def count(self, request: str) -> int:
        """Return how many requests have begun so."""
        return sum(line.startswith(request) for line in self.requests)

    def close(self) -> None:
        """Break every connection, and refuse new ones."""
        self.release()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(30)
        with self._lock:
            self._reset()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._ends |= {client, server}
            last: list[bytes] = [b""]
            for source, target, sends in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._forward, args=(source, target, sends, last), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, sends: bool, last: list[bytes]) -> None:
        """Forward in one direction until an end closes; ``last`` is the request line that the connection serves."""
        while True:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            if sends and self.holds:
                self._released.wait()
            if data and sends and (match := _REQUEST.match(data)):
                last[0] = match[0]
                self.requests.append(match[0].decode().rpartition(" ")[0])
            with self._lock:
                data, broken = self._planned(data, sends, last[0]) if data else (data, False)
                with suppress(OSError):
                    if data:
                        target.sendall(data)
                if broken:
                    self.breaks += 1
                    self._reset()
                    return
            if not data:
                for end in (source, target):
                    with suppress(OSError):
                        end.shutdown(socket.SHUT_RDWR)
                return

    def _planned(self, data: bytes, sends: bool, request: bytes) -> tuple[bytes, bool]:
        """Return what to forward of some bytes, and whether the connections break after it."""
        broken = False
        if self._plan and self._plan[0].sends == sends:
            planned = self._plan[0]
            if planned.request is not None:
                broken = request.startswith(planned.request)
                data = b"" if broken else data
            else:
                broken = len(data) >= planned.count
                data = data[: planned.count] if broken else data
                planned.count -= len(data)
            if broken:
                self._plan.popleft()
        if sends:
            self.sent += len(data)
        else:
            self.received += len(data)
        return data, broken

    def _reset(self) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.shutdown(socket.SHUT_RD)
            end.close()
        self._ends.clear()
