"""Usage of the project that a client acts in: sums by anything, and what they cost."""

from collections.abc import Sequence
from datetime import date, datetime

from windtunnel._async.accounts import project_of
from windtunnel._async.transport import AsyncTransport, path
from windtunnel.record import read
from windtunnel.usage_records import ProjectUsage


class AsyncUsage:
    """Usage of the project that a client acts in; or of every project, for operators."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(
        self,
        by: Sequence[str] = (),
        *,
        since: date | datetime | str | None = None,
        until: date | datetime | str | None = None,
        every_project: bool = False,
    ) -> ProjectUsage:
        """Return the sums by these, such as `day`, `user`, `simulation`, `kind` or `label:team`, and their total."""
        address = await self._address(every_project)
        params = _query(by, since, until)
        return read(ProjectUsage, await self._transport.json("GET", address, params=params))

    async def csv(
        self,
        by: Sequence[str] = (),
        *,
        since: date | datetime | str | None = None,
        until: date | datetime | str | None = None,
        every_project: bool = False,
    ) -> str:
        """Return the same sums as CSV."""
        address = await self._address(every_project)
        params = {**_query(by, since, until), "format": "csv"}
        return (await self._transport.request("GET", address, params=params)).content.decode()

    async def _address(self, every_project: bool) -> str:
        return path("usage") if every_project else path("projects", await project_of(self._transport), "usage")


def _query(
    by: Sequence[str], since: date | datetime | str | None, until: date | datetime | str | None
) -> dict[str, str | None]:
    return {"by": ",".join(by) or None, "since": _moment(since), "until": _moment(until)}


def _moment(value: date | datetime | str | None) -> str | None:
    return value.isoformat() if isinstance(value, date) else value
