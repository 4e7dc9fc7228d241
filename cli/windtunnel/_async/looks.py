"""Looks into tasks of programs while they run: their folders, and their files while they grow."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from windtunnel._async.pages import pages
from windtunnel._async.transport import AsyncTransport, path
from windtunnel.errors import Refused
from windtunnel.look_records import (
    FilePiece,
    ListedFolder,
    ProgramConnection,
    ReceivedPieces,
    SentPiece,
    TaskLook,
)
from windtunnel.record import read

#: Seconds for which a request waits for a file to grow.
GROWTH_WAIT = 20
#: Seconds until a piece of a connection for which there was no room is sent again.
ROOM = 0.05


class AsyncLooks:
    """Looks into the tasks of one platform's simulations, where its operator allows them; each is recorded."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, id: str, task: int, folder: str = "") -> ListedFolder:
        """Return what is in a folder of a task that runs; without one, the folders that are shown."""
        address = path("simulations", id, "tasks", task, "files")
        return read(ListedFolder, await self._transport.json("GET", address, params={"path": folder or None}))

    async def read(self, id: str, task: int, file: str, *, offset: int = 0, wait: int = 0) -> FilePiece:
        """Return bytes of a file of a task that runs, from an offset on, from its end if that is negative.

        ``wait``: seconds to wait for bytes, if there are none yet.
        """
        params = {"path": file, "offset": offset, "wait_seconds": wait or None}
        response = await self._transport.request(
            "GET", path("simulations", id, "tasks", task, "files", "content"), params=params
        )
        start, size = (int(response.headers.get(name, 0)) for name in ("File-Offset", "File-Size"))
        return FilePiece(start, size, response.content)

    async def pieces(
        self, id: str, task: int, file: str, *, offset: int = 0, follow: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield the bytes of a file of a task that runs, from an offset on.

        ``follow``: also what is added to it, until the task has ended; of a file that is written again, its beginning.
        The last bytes before a task's end may be missing: its outputs and its logs have them.
        """
        seen = False
        while True:
            try:
                piece = await self.read(id, task, file, offset=offset, wait=GROWTH_WAIT if follow else 0)
            except Refused as refusal:
                if seen and refusal.type == "task-not-at-work":
                    return
                raise
            seen = True
            if piece.data:
                yield piece.data
            elif not follow:
                return
            offset = piece.end if piece.data or piece.size >= max(offset, 0) else 0

    async def connect(self, id: str, task: int, port: int) -> str:
        """Connect to a port of a program that runs, and return the id of the connection."""
        address = path("simulations", id, "tasks", task, "connections")
        return read(ProgramConnection, await self._transport.json("POST", address, json={"port": port})).id

    async def send(self, id: str, connection: str, number: int, data: bytes) -> bool:
        """Send a piece of bytes to a program, an empty one at the end; return whether the connection goes on."""
        address = path("simulations", id, "connections", connection, "pieces")
        while True:
            params = {"number": number}
            answer = read(
                SentPiece, await self._transport.json("POST", address, params=params, content=data, repeatable=True)
            )
            if answer.accepted or answer.over:
                return not answer.over
            await asyncio.sleep(ROOM)

    async def receive(self, id: str, connection: str, number: int) -> ReceivedPieces:
        """Wait a while for bytes from a program, from a piece on; return them, possibly none."""
        address = path("simulations", id, "connections", connection, "pieces")
        response = await self._transport.request("GET", address, params={"number": number})
        state = response.headers.get("Connection-State", "over")
        return ReceivedPieces(int(response.headers.get("Next-Piece", number)), response.content, state)

    async def disconnect(self, id: str, connection: str) -> None:
        """Close a connection, unless it is over already."""
        await self._transport.request("DELETE", path("simulations", id, "connections", connection))

    async def records(self, id: str) -> Sequence[TaskLook]:
        """Return who has looked at what in the tasks of a simulation."""
        address = path("simulations", id, "looks")
        return [read(TaskLook, item) async for item in pages(self._transport, address, {})]
