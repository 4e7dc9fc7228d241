"""Proxy in front of an S3 server that injects faults: delays, broken connections, wrong lengths and wrong bytes."""

import contextlib
import fcntl
import re
import socket
import ssl
import struct
import sys
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.waiting import until


@dataclass(frozen=True, slots=True)
class Response:
    """The response of the real server."""

    head: bytes
    body: bytes

    def with_length(self, length: int) -> bytes:
        """Return the head with another Content-Length."""
        return re.sub(rb"(?i)(content-length: *)\d+", rb"\g<1>%d" % length, self.head)


#: A fault: called with the client's socket instead of sending the server's response. Then the connection is closed.
Fault = Callable[[socket.socket, Response], None]


def _reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def _unread(client: socket.socket) -> int:
    """Return how many bytes the client has yet to read: unacknowledged, or in its receive queue (proc(5))."""
    unsent = int.from_bytes(fcntl.ioctl(client, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    ports = tuple(f":{end[1]:04X}" for end in (client.getpeername(), client.getsockname()))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if (local[-5:], remote[-5:]) == ports:
            return unsent + int(queues.partition(":")[2], 16)
    return unsent


def _fixed_response(text: str) -> Fault:
    def fault(client: socket.socket, response: Response) -> None:
        client.sendall(text.replace("\n", "\r\n").encode() + b"\r\n")

    return fault


def unavailable(seconds: int) -> Fault:
    """Respond with 503 and Retry-After."""
    return _fixed_response(f"HTTP/1.1 503 Slow Down\nRetry-After: {seconds}\nContent-Length: 0\n")


def status(code: int) -> Fault:
    """Respond with a status and a body that differs from the object."""
    return _fixed_response(f"HTTP/1.1 {code} Injected Fault\nContent-Length: 5\n\nwrong")


def slow_to_begin(client: socket.socket, response: Response) -> None:
    """Send the response after a pause."""
    time.sleep(0.5)
    client.sendall(response.head + response.body)


def silent(client: socket.socket, response: Response) -> None:
    """Accept the request and never respond; the client times out."""
    client.settimeout(20.0)
    with contextlib.suppress(OSError):
        client.recv(1)  # the client disconnects first


def stalled(client: socket.socket, response: Response) -> None:
    """Send half of the body and then nothing."""
    client.sendall(response.head + response.body[: len(response.body) // 2])
    silent(client, response)


def truncated(client: socket.socket, response: Response) -> None:
    """Announce the complete body and close the connection in the middle of it."""
    client.sendall(response.head + response.body[: len(response.body) // 2])


def reset(client: socket.socket, response: Response) -> None:
    """Reset the connection in the middle of the body."""
    client.sendall(response.head + response.body[: len(response.body) // 2])
    until(lambda: not _unread(client))  # an earlier reset would discard the bytes that were sent
    _reset(client)


def reset_at_once(client: socket.socket, response: Response) -> None:
    """Reset the connection before the first byte."""
    _reset(client)


def hangs_up(client: socket.socket, response: Response) -> None:
    """Close the connection without a response."""


def announces_less(client: socket.socket, response: Response) -> None:
    """Send half of the body with a Content-Length of that half."""
    half = len(response.body) // 2
    client.sendall(response.with_length(half) + response.body[:half])


def announces_more(client: socket.socket, response: Response) -> None:
    """Announce more bytes than are sent."""
    client.sendall(response.with_length(len(response.body) + 1000) + response.body)


def gives_more(client: socket.socket, response: Response) -> None:
    """Send more bytes than were requested, with the right Content-Length."""
    client.sendall(response.with_length(len(response.body) + 1000) + response.body + b"x" * 1000)


def flips_a_bit(client: socket.socket, response: Response) -> None:
    """Flip a bit of an otherwise correct response."""
    body = bytearray(response.body)
    body[len(body) // 3] ^= 4
    client.sendall(response.head + body)


def another_range(client: socket.socket, response: Response) -> None:
    """Send bytes of another range of the object."""
    client.sendall(response.head + response.body[1:] + response.body[:1])


def babbles(client: socket.socket, response: Response) -> None:
    """Send bytes that are not HTTP."""
    client.sendall(b"\x00\xff" * 3000)


def redirects(client: socket.socket, response: Response) -> None:
    """Redirect to another host."""
    client.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/secret\r\nContent-Length: 3\r\n\r\nno!")


#: Transient faults: some tests let a correct response follow, others repeat the fault.
PASSING: Mapping[str, Fault] = {
    "500": status(500),
    "503 with Retry-After": unavailable(1),
    "429": status(429),
    "slow to begin": slow_to_begin,
    "silent": silent,
    "stalled in mid-body": stalled,
    "truncated": truncated,
    "reset in mid-body": reset,
    "reset at once": reset_at_once,
    "hangs up": hangs_up,
    "announces less": announces_less,
    "announces more": announces_more,
    "gives more": gives_more,
    "flips a bit": flips_a_bit,
    "another range": another_range,
    "babbles": babbles,
}
#: Permanent faults: not retried.
FINAL: Mapping[str, Fault] = {
    "403": status(403),
    "404": status(404),
    "redirects": redirects,
    "503 for an hour": unavailable(3600),
}


class Proxy:
    """Proxy of a server. Requests get the faults of ``next`` in order, then ``always``, else the server's response."""

    def __init__(self, endpoint: str, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(endpoint)
        self._tls = tls
        self._server = (parts.hostname, parts.port)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.endpoint = f"http{'s' if tls else ''}://127.0.0.1:{self._listening.getsockname()[1]}"
        self.next: deque[Fault | None] = deque()
        self.always: Fault | None = None
        #: Request line and Range header of each request.
        self.requests: list[tuple[str, str]] = []
        self._threads: list[threading.Thread] = []
        self._clients: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Stop listening and wait for the requests in progress."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._accepting.join(30)
        self._listening.close()
        for client in self._clients:  # idle connections that clients keep open
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RD)
        for thread in self._threads:
            thread.join(30)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(30.0)
        with contextlib.suppress(OSError), self._with_tls(client) as client:
            self._clients.append(client)
            while head := _head(client):
                range_header = re.search(rb"(?im)^range: *(\S+)", head)
                self.requests.append(
                    (head.split(b"\r\n")[0].decode(), range_header[1].decode() if range_header else "")
                )
                fault = self.next.popleft() if self.next else self.always
                response = self._forward(head)
                if fault is not None:
                    return fault(client, response)
                client.sendall(response.head + response.body)

    def _with_tls(self, client: socket.socket) -> socket.socket:
        try:
            return self._tls.wrap_socket(client, server_side=True) if self._tls else client
        except OSError:
            client.close()
            raise

    def _forward(self, head: bytes) -> Response:
        with socket.create_connection(self._server, timeout=30.0) as server:
            server.sendall(head)
            response_head = _head(server)
            length = re.search(rb"(?im)^content-length: *(\d+)", response_head)
            body = bytearray()
            while length and len(body) < int(length[1]) and (data := server.recv(1 << 20)):
                body += data
            return Response(response_head, bytes(body))


def _head(connection: socket.socket) -> bytes:
    """Read up to the empty line that ends a head."""
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        if not (byte := connection.recv(1)):
            return b""
        head += byte
    return bytes(head)
