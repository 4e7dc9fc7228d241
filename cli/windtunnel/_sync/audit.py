# Generated from windtunnel/_async/audit.py by scripts/sync_client.py; change that file.
"""Audit log: who did what to what in the project that a client acts in, or for operators in all of them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Unpack

from windtunnel._sync.pages import pages
from windtunnel._sync.transport import Transport, path
from windtunnel.account_records import AuditFilters, RecordedAct
from windtunnel.record import read

#: Most entries of a page.
LONGEST_PAGE = 1000


class Audit:
    """Audit log of the project that a client acts in; of all of them for an operator whose client names none."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, **filters: Unpack[AuditFilters]) -> Iterator[RecordedAct]:
        """Yield entries, newest first; times without a zone are those of this machine."""
        params = {
            name: value.astimezone().isoformat() if isinstance(value, datetime) else value
            for name, value in filters.items()
            if value is not None
        }
        for document in pages(self._transport, path("audit"), params, limit, LONGEST_PAGE):
            yield read(RecordedAct, document)
