"""Shares: what the project that a client acts in lets others read, and what others let it read."""

from collections.abc import AsyncIterator

from windtunnel._async.pages import pages
from windtunnel._async.transport import AsyncTransport, path
from windtunnel.account_records import ProjectShare
from windtunnel.record import read


class AsyncShares:
    """Shares; ``kind`` is ``models``, ``datasets`` or ``simulations``."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, limit: int | None = None) -> AsyncIterator[ProjectShare]:
        """Yield the shares that the project has made, and those with it, newest first."""
        async for document in pages(self._transport, path("shares"), {}, limit):
            yield read(ProjectShare, document)

    async def add(self, kind: str, reference: str, project: str) -> None:
        """Let a project read a model, a dataset or a simulation; by a name alone, all its versions."""
        await self._transport.request("PUT", path(kind, reference, "shares", project))

    async def remove(self, kind: str, reference: str, project: str) -> None:
        """End a share; what runs with it goes on."""
        await self._transport.request("DELETE", path(kind, reference, "shares", project))
