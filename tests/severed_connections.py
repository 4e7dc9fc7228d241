"""TCP proxy that can be severed: it then forwards nothing and accepts nothing, as a network that drops all packets.

Connections stay open on both sides, new ones are taken by the kernel's backlog, and no byte is answered.
"""

import os
import selectors
import socket
import threading
from contextlib import suppress
from pathlib import Path


class SeveredConnections:
    """A proxy on loopback in front of a Unix socket or a TCP port, until ``sever``; ``restore`` forwards again."""

    def __init__(self, target: Path | tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = int(self._listener.getsockname()[1])
        self._forwarding = threading.Event()
        self._forwarding.set()
        self._ended = False
        self._peers: dict[socket.socket, socket.socket] = {}
        self._wake, self._woken = os.pipe()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def sever(self) -> None:
        """Forward and accept nothing from now on."""
        self._forwarding.clear()
        os.write(self._woken, b"!")

    def restore(self) -> None:
        """Forward again, also what was sent meanwhile."""
        self._forwarding.set()

    def close(self) -> None:
        """Close every connection."""
        self._ended = True
        self._forwarding.set()
        os.write(self._woken, b"!")
        self._thread.join(30)
        for end in [*self._peers, self._listener]:
            end.close()
        os.close(self._wake)
        os.close(self._woken)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                events = selector.select()
                self._forwarding.wait()
                if self._ended:
                    return
                for key, _ in events:
                    if key.fileobj == self._wake:
                        os.read(self._wake, 64)
                    elif key.fileobj is self._listener:
                        self._accept(selector)
                    elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._peers:
                        self._forward(selector, key.fileobj)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        client, _ = self._listener.accept()
        try:
            server = self._connect()
        except OSError:
            client.close()
            return
        for end, other in ((client, server), (server, client)):
            self._peers[end] = other
            selector.register(end, selectors.EVENT_READ)

    def _connect(self) -> socket.socket:
        if isinstance(self._target, tuple):
            return socket.create_connection(self._target, timeout=5)
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(str(self._target))
        except OSError:
            server.close()
            raise
        return server

    def _forward(self, selector: selectors.BaseSelector, end: socket.socket) -> None:
        other = self._peers[end]
        data = b""
        with suppress(OSError):
            data = end.recv(1 << 16)
            if data:
                other.sendall(data)
                return
        for closed in (end, other):
            del self._peers[closed]
            selector.unregister(closed)
            closed.close()
