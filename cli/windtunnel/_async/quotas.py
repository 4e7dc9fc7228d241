"""Quotas: limits of the project that a client acts in, of a user there, and of every project; and their use."""

from collections.abc import Mapping

from windtunnel._async.accounts import project_of
from windtunnel._async.transport import AsyncTransport, path
from windtunnel.account_records import ProjectQuota
from windtunnel.record import read


class AsyncQuotas:
    """Quotas of the project that a client acts in; with ``user``, of this user there; or of every project."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self, *, user: str | None = None, every_project: bool = False) -> list[ProjectQuota]:
        """Return each quota with its limit and its use."""
        return _uses(await self._transport.json("GET", await self._address(user, every_project)))

    async def limit(
        self, limits: Mapping[str, int | None], *, user: str | None = None, every_project: bool = False
    ) -> list[ProjectQuota]:
        """Change these limits, and leave the others as they are; None: no limit of its own."""
        address = await self._address(user, every_project)
        own = {use.quota: use.own for use in _uses(await self._transport.json("GET", address))}
        return _uses(await self._transport.json("PUT", address, json={**own, **limits}))

    async def _address(self, user: str | None, every_project: bool) -> str:
        if every_project:
            return path("quotas")
        member = () if user is None else ("members", user)
        return path("projects", await project_of(self._transport), *member, "quotas")


def _uses(document: Mapping[str, dict[str, object]]) -> list[ProjectQuota]:
    return [read(ProjectQuota, {"quota": name, **use}) for name, use in document.items()]
