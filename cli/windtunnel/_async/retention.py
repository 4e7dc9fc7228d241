"""Retention: rules of the project that a client acts in, what they would take, and its bin."""

from collections.abc import AsyncIterator, Mapping, Sequence

from windtunnel._async.accounts import project_of
from windtunnel._async.pages import pages
from windtunnel._async.transport import AsyncTransport, path
from windtunnel.record import read
from windtunnel.retention_records import BinItem, RetentionDryRun, RetentionRules


class AsyncRetention:
    """Rules by which the project that a client acts in deletes what is old. A rule is a document of the API."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self) -> RetentionRules:
        """Return what the project has decided."""
        return read(RetentionRules, await self._transport.json("GET", await self._address()))

    async def set(
        self, *, rules: Sequence[Mapping[str, object]] | None = None, bin: bool | None = None
    ) -> RetentionRules:
        """Replace the rules, and whether what people delete goes to the bin; None: as before."""
        before = await self.get()
        body = {"rules": before.rules if rules is None else list(rules), "bin": before.bin if bin is None else bin}
        return read(RetentionRules, await self._transport.json("PUT", await self._address(), json=body))

    async def dry_run(self, rules: Sequence[Mapping[str, object]] | None = None) -> RetentionDryRun:
        """Return what rules would take now; None: the project's own."""
        body = {} if rules is None else {"rules": list(rules)}
        return read(RetentionDryRun, await self._transport.json("POST", await self._address("dry-run"), json=body))

    async def _address(self, *more: str) -> str:
        return path("projects", await project_of(self._transport), "retention", *more)


class AsyncBin:
    """The bin of the project that a client acts in."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, limit: int | None = None) -> AsyncIterator[BinItem]:
        """Yield what is in the bin, the last deleted first."""
        async for document in pages(self._transport, path("bin"), {}, limit):
            yield read(BinItem, document)

    async def restore(self, id: str) -> None:
        """Take something back, as it was but for its shares."""
        await self._transport.request("POST", path("bin", id, "restore"))

    async def empty(self, id: str | None = None) -> None:
        """Delete something for good; None: all that is in the bin."""
        await self._transport.request("DELETE", path("bin") if id is None else path("bin", id))
