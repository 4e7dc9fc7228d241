"""Flow control of streamed responses: how far a client is behind, by its connection's TCP_INFO.

granian's RSGI transport buffers without a limit, so a thread that streams waits here until the client has acknowledged
enough. A client that acknowledges nothing for a while is disconnected.
"""

import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from common.backoff import RetryPolicy

#: Bytes of a response after which its connection is watched, and most bytes that a watched client may be behind.
WINDOW = 2 << 20
#: Looks at a connection whose client is behind, until it has acknowledged no byte for so long.
LOOKS = RetryPolicy(first=0.001, longest=0.05, patience=60.0)
#: Offset of `tcpi_bytes_acked`, a 64-bit number, in the kernel's `struct tcp_info` (linux/tcp.h, since Linux 4.1).
_ACKNOWLEDGED_OFFSET = 120
_NUMBER = struct.Struct("=Q")


class ClientStalled(Exception):
    """The client has stopped reading the response; its connection is closed."""


def acknowledged(connection: socket.socket) -> int:
    """Return the number of bytes that the peer has acknowledged since the connection was made."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED_OFFSET + _NUMBER.size)
    return int(_NUMBER.unpack_from(info, _ACKNOWLEDGED_OFFSET)[0])


def own_sockets() -> Iterator[socket.socket]:
    """Yield a duplicate of each socket of this process; the caller closes it."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed by now
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield socket.socket(fileno=os.dup(int(name)))


def connection_of(client: str) -> socket.socket | None:
    """Return a duplicate of the connection with a client, ``address:port``; None if there is none."""
    host, _, port = client.rpartition(":")
    peer = (host.strip("[]"), int(port))
    for connection in own_sockets():
        with suppress(OSError):
            if connection.type == socket.SOCK_STREAM and connection.getpeername()[:2] == peer:
                return connection
        connection.close()
    return None


class SlowReader:
    """The client of one streamed response; makes the thread that streams wait while the client is behind."""

    def __init__(self, client: str, *, patience: float = LOOKS.patience) -> None:
        self._client = client
        self._patience = patience
        self._sent = 0
        self._connection: socket.socket | None = None
        self._base = 0

    def sent(self, count: int) -> None:
        """Record that ``count`` bytes were passed on; wait while the client is behind by more than WINDOW bytes."""
        self._sent += count
        if self._sent <= WINDOW:
            return
        if self._connection is None:
            self._connection = connection_of(self._client)
            if self._connection is None:
                raise ClientStalled
            self._base = acknowledged(self._connection) - self._sent + WINDOW
        self._wait(self._connection)

    def _wait(self, connection: socket.socket) -> None:
        done = acknowledged(connection) - self._base
        moved_at, looks, clock = time.monotonic(), 0, threading.Event()
        while self._sent - done > WINDOW:
            looks += 1
            clock.wait(LOOKS.pause(looks))
            now, before = time.monotonic(), done
            done = acknowledged(connection) - self._base
            if done > before:
                moved_at = now
            elif now - moved_at > self._patience or _is_closed(connection):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                raise ClientStalled

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the connection is neither established nor half-closed by the client."""
    established, close_wait = 1, 8
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] not in (established, close_wait)
