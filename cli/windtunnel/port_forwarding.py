"""Port forwarding: connections to a port of this machine go on to a port of a program that runs on the platform."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from windtunnel.errors import Refused, WindtunnelError

if TYPE_CHECKING:
    from windtunnel import Client

#: Bytes that are read at once.
PIECE = 64 << 10


class PortForwarding:
    """Accepts connections at 127.0.0.1, at any free port if ``local_port`` is 0. ``say``: gets what goes wrong."""

    def __init__(
        self, client: "Client", id: str, task: int, port: int, *, local_port: int, say: Callable[[str], object]
    ) -> None:
        self._client, self._id, self._task, self._port = client, id, task, port
        self._say = say
        self._listener = socket.create_server(("127.0.0.1", local_port), backlog=64)

    @property
    def local_port(self) -> int:
        """The port of this machine."""
        return int(self._listener.getsockname()[1])

    def check(self) -> None:
        """Connect once. Raise Refused if that is never possible; a program may listen later."""
        try:
            self._client.looks.disconnect(self._id, self._client.looks.connect(self._id, self._task, self._port))
        except Refused as error:
            if error.type != "port-not-reached":
                raise
            self._say(f"{error} It may later.")

    def serve(self) -> None:
        """Forward connections, until `close`."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # it is closed
                return
            threading.Thread(target=self._forward, args=(connection,), name="forward", daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _forward(self, connection: socket.socket) -> None:
        """Pass the bytes of a connection on in both directions, to its end."""
        with connection:
            try:
                tunnel = self._client.looks.connect(self._id, self._task, self._port)
            except WindtunnelError as error:
                self._say(str(error))
                return
            sending = threading.Thread(target=self._send, args=(connection, tunnel), name="forward-send", daemon=True)
            sending.start()
            try:
                self._receive(connection, tunnel)
            except WindtunnelError as error:
                self._say(str(error))
            finally:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                sending.join()
                with contextlib.suppress(WindtunnelError):
                    self._client.looks.disconnect(self._id, tunnel)

    def _send(self, connection: socket.socket, tunnel: str) -> None:
        """Send what this machine's side says, and its end."""
        data, number = b"begun", 0
        try:
            while data:
                try:
                    data = connection.recv(PIECE)
                except OSError:
                    data = b""
                if not self._client.looks.send(self._id, tunnel, number, data):
                    return
                number += 1
        except WindtunnelError as error:
            self._say(str(error))

    def _receive(self, connection: socket.socket, tunnel: str) -> None:
        """Pass on what the program says, until its end."""
        number, state = 0, "open"
        while state == "open":
            pieces = self._client.looks.receive(self._id, tunnel, number)
            number, state = pieces.next, pieces.state
            try:
                connection.sendall(pieces.data)
            except OSError:  # this machine's side has closed it
                return
