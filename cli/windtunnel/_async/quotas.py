"""Quotas: limits of the project that a client acts in, of a user there, and of every project; and their use."""

from collections.abc import Mapping
from typing import cast

import msgspec

from windtunnel._async.accounts import project_of
from windtunnel._async.transport import AsyncTransport, path
from windtunnel.account_records import ProjectQuota, UsedLimit
from windtunnel.record import read

#: Member of the document in which resources have their limits.
RESOURCES = "resources"


class _UsedLimits(msgspec.Struct, frozen=True):
    items: list[dict[str, object]]


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
        """Change these limits, and leave the others as they are; None: no limit of its own.

        A resource is named as in ``resources.cpu`` (cores), ``resources.memory`` (bytes), ``resources.nvidia.com/gpu``.
        """
        address = await self._address(user, every_project)
        own = {use.quota: use.own for use in _uses(await self._transport.json("GET", address))}
        return _uses(await self._transport.json("PUT", address, json=_body({**own, **limits})))

    async def fullest(self, *, percent: int = 80, limit: int = 100) -> list[UsedLimit]:
        """Return the limits of all projects and users of which at least a part is used, the fullest first."""
        params = {"percent": percent, "limit": limit}
        document = await self._transport.json("GET", path("quotas", "fullest"), params=params)
        return [read(UsedLimit, item) for item in msgspec.convert(document, _UsedLimits).items]

    async def _address(self, user: str | None, every_project: bool) -> str:
        if every_project:
            return path("quotas")
        member = () if user is None else ("members", user)
        return path("projects", await project_of(self._transport), *member, "quotas")


def _uses(document: Mapping[str, dict[str, object]]) -> list[ProjectQuota]:
    quotas: dict[str, object] = dict(document)
    resources = cast("Mapping[str, object]", quotas.pop(RESOURCES, {}))
    quotas |= {f"{RESOURCES}.{name}": use for name, use in resources.items()}
    return [read(ProjectQuota, {"quota": name, **cast("dict[str, object]", use)}) for name, use in quotas.items()]


def _body(limits: Mapping[str, int | None]) -> dict[str, object]:
    body: dict[str, object] = {}
    resources: dict[str, int] = {}
    for quota, amount in limits.items():
        kind, dot, name = quota.partition(".")
        if kind == RESOURCES and dot:
            resources |= {} if amount is None else {name: amount}
        else:
            body[quota] = amount
    return {**body, RESOURCES: resources} if resources else body
