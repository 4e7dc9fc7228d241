# Generated from windtunnel/_async/usage.py by scripts/sync_client.py; change that file.
"""Usage of the project that a client acts in: sums by anything, and what they cost."""

from collections.abc import Sequence
from datetime import date, datetime

from windtunnel._sync.accounts import project_of
from windtunnel._sync.transport import Transport, path
from windtunnel.record import read
from windtunnel.usage_records import ProjectUsage


class SyncUsage:
    """Usage of the project that a client acts in; or of every project, for operators."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(
        self,
        by: Sequence[str] = (),
        *,
        since: date | datetime | str | None = None,
        until: date | datetime | str | None = None,
        every_project: bool = False,
    ) -> ProjectUsage:
        """Return the sums by these, such as `day`, `user`, `simulation`, `kind` or `label:team`, and their total."""
        address = self._address(every_project)
        params = _query(by, since, until)
        return read(ProjectUsage, self._transport.json("GET", address, params=params))

    def csv(
        self,
        by: Sequence[str] = (),
        *,
        since: date | datetime | str | None = None,
        until: date | datetime | str | None = None,
        every_project: bool = False,
    ) -> str:
        """Return the same sums as CSV."""
        address = self._address(every_project)
        params = {**_query(by, since, until), "format": "csv"}
        return (self._transport.request("GET", address, params=params)).content.decode()

    def _address(self, every_project: bool) -> str:
        return path("usage") if every_project else path("projects", project_of(self._transport), "usage")


def _query(
    by: Sequence[str], since: date | datetime | str | None, until: date | datetime | str | None
) -> dict[str, str | None]:
    return {"by": ",".join(by) or None, "since": _moment(since), "until": _moment(until)}


def _moment(value: date | datetime | str | None) -> str | None:
    return value.isoformat() if isinstance(value, date) else value
