"""ASGI connection: an application served by uvicorn on one connected socket, without a listener and without a network.

Imported in the processes of environments only, whose packages have uvicorn.
"""

import asyncio
import random
import socket
import sys
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from ..simulators.base import SEED

#: The most bytes of a message to the application, and seconds for which a connection may be idle: a model may think.
LARGEST, IDLE = 16 << 20, 86400


class _Connections(set[Any]):
    """The open connections of a server; ``ended`` becomes set when the last one is closed."""

    def __init__(self, ended: asyncio.Event) -> None:
        super().__init__()
        self._ended = ended

    def remove(self, connection: Any) -> None:
        self.discard(connection)

    def discard(self, connection: Any) -> None:
        super().discard(connection)
        # Later: a connection that becomes a WebSocket is discarded and added again.
        asyncio.get_running_loop().call_soon(self._check)

    def _check(self) -> None:
        if not self:
            self._ended.set()


class AsgiServer:
    """Serves an application; what can be prepared for all scenarios is prepared here."""

    def __init__(self, application: Any) -> None:
        self._config = Config(
            application,
            loop="asyncio",
            http="h11",
            log_level="warning",
            access_log=False,
            ws_ping_interval=None,
            ws_max_size=LARGEST,
            timeout_keep_alive=IDLE,
        )
        self._config.load()

    def serve(self, connected: socket.socket) -> None:
        """Serve the connection until the other side closes it. The loop is not closed: a thread may hang in it."""
        seed_generators(connected)
        asyncio.new_event_loop().run_until_complete(self._serve(connected))

    async def _serve(self, connected: socket.socket) -> None:
        lifespan = self._config.lifespan_class(self._config)
        await lifespan.startup()
        if lifespan.should_exit:
            raise SystemExit("the application's start-up failed")
        ended = asyncio.Event()
        state = ServerState()
        state.connections = _Connections(ended)

        implementation: Any = self._config.http_protocol_class

        def protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = implementation(config=self._config, server_state=state, app_state=lifespan.state)
            return made

        connected.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(protocol, connected)
        await ended.wait()


def seed_generators(connected: socket.socket) -> None:
    """Seed Python's global random generator, and numpy's if the environment has it, from the first bytes."""
    received = b""
    while len(received) < SEED.size:
        piece = connected.recv(SEED.size - len(received))
        if not piece:
            raise SystemExit(0)
        received += piece
    (seed,) = SEED.unpack(received)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)
