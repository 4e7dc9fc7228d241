"""Connection table: the open client connections by descriptor, what epoll watches of each, and how each is closed."""

import select
import socket
import time
from collections.abc import Callable, Iterator

from datasets.scs.config import Limits
from datasets.scs.connection import ClientConnection, ConnectionState

IN, OUT = select.EPOLLIN, select.EPOLLOUT
#: Bytes read per recv, and so the most that a connection can have buffered here.
READ_SIZE = 64 << 10
#: Bytes and seconds for which the body of a refused request is still read, so that the client reads the response.
_LINGER, _LINGER_TIME = 64 << 20, 5.0


class ConnectionTable:
    """Connections of one event loop; only its thread uses them."""

    def __init__(self, epoll: select.epoll, limits: Limits) -> None:
        self._epoll, self._limits = epoll, limits
        self.by_descriptor: dict[int, ClientConnection] = {}

    def add(self, sock: socket.socket, now: float) -> None:
        """Add an accepted connection, and wait for its first request."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = ClientConnection(sock, self._limits)
        connection.deadline = now + self._limits.head_time
        self.by_descriptor[connection.fd] = connection
        self.watch(connection, IN)

    def watch(self, connection: ClientConnection, mask: int) -> None:
        """Set the events for which epoll reports a connection; 0 for none."""
        if mask == connection.mask:
            return
        if not connection.mask:
            self._epoll.register(connection.fd, mask)
        elif mask:
            self._epoll.modify(connection.fd, mask)
        else:
            self._epoll.unregister(connection.fd)
        connection.mask = mask

    def hand_over(self, connection: ClientConnection) -> None:
        """Hand a connection to a thread: the loop does not touch it until the thread schedules a call."""
        connection.state = ConnectionState.OFF_LOOP
        self.watch(connection, 0)

    def resume(self, connection: ClientConnection, step: Callable[[], bool | None]) -> bool:
        """Run a step on a connection that a thread returned; return its result, False if the connection broke."""
        try:
            return connection.state is not ConnectionState.CLOSED and bool(step())
        except OSError:
            self.close(connection)
            return False

    def expired(self, now: float) -> Iterator[ClientConnection]:
        """Yield the connections whose deadline has passed, without those that a thread owns."""
        for connection in list(self.by_descriptor.values()):
            if connection.state is not ConnectionState.OFF_LOOP and connection.deadline <= now:
                yield connection

    def discard(self, connection: ClientConnection) -> None:
        """Read and drop bytes of a lingering connection; close it at its end or limit."""
        data = connection.sock.recv(READ_SIZE)
        connection.discarded += len(data)
        if not data or connection.discarded > _LINGER:
            self.close(connection)

    def close_after_response(self, connection: ClientConnection) -> None:
        """Close; if unread bytes may follow, shut down only the sending side: a reset would lose the response."""
        if not connection.unread:
            self.close(connection)
            return
        connection.sock.shutdown(socket.SHUT_WR)
        connection.requests.clear()
        connection.state = ConnectionState.LINGERING
        connection.deadline = time.monotonic() + _LINGER_TIME
        self.watch(connection, IN)

    def close(self, connection: ClientConnection) -> None:
        """Close a connection, unless it is closed."""
        if connection.state is ConnectionState.CLOSED:
            return
        self.watch(connection, 0)
        connection.release_file()
        self.by_descriptor.pop(connection.fd, None)
        connection.state = ConnectionState.CLOSED
        connection.requests.clear()
        connection.sock.close()
        del connection.parser  # parser and connection refer to each other: break the cycle
