# Generated from windtunnel/_async/shares.py by scripts/sync_client.py; change that file.
"""Shares: what the project that a client acts in lets others read, and what others let it read."""

from collections.abc import Iterator

from windtunnel._sync.pages import pages
from windtunnel._sync.transport import Transport, path
from windtunnel.account_records import ProjectShare
from windtunnel.record import read


class SyncShares:
    """Shares; ``kind`` is ``models``, ``datasets`` or ``simulations``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None) -> Iterator[ProjectShare]:
        """Yield the shares that the project has made, and those with it, newest first."""
        for document in pages(self._transport, path("shares"), {}, limit):
            yield read(ProjectShare, document)

    def add(self, kind: str, reference: str, project: str) -> None:
        """Let a project read a model, a dataset or a simulation; by a name alone, all its versions."""
        self._transport.request("PUT", path(kind, reference, "shares", project))

    def remove(self, kind: str, reference: str, project: str) -> None:
        """End a share; what runs with it goes on."""
        self._transport.request("DELETE", path(kind, reference, "shares", project))
