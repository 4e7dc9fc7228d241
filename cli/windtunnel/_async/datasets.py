"""Datasets of a platform: versions, scenarios, files, differences."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from windtunnel._async.pages import pages
from windtunnel._async.transport import AsyncTransport, path
from windtunnel.records import Dataset, read


class AsyncDatasets:
    """Datasets of one platform. A dataset is named by name, ``name@version``, ``name@tag``, id or digest."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, limit: int | None = None) -> AsyncIterator[Dataset]:
        """Yield datasets, the built-in ones first, each at its latest version."""
        async for document in pages(self._transport, path("datasets"), {}, limit):
            yield read(Dataset, document)

    async def get(self, dataset: str) -> Dataset:
        """Return a dataset, with the model's interface, its metrics and its parameters."""
        return read(Dataset, await self._transport.json("GET", path("datasets", dataset)))

    async def versions(self, name: str, *, limit: int | None = None) -> AsyncIterator[Dataset]:
        """Yield the versions of a registered dataset, the newest first."""
        async for document in pages(self._transport, path("datasets", name, "versions"), {}, limit):
            yield read(Dataset, document)

    async def scenarios(self, dataset: str, *, limit: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """Yield the scenarios of a dataset, in order."""
        async for document in pages(self._transport, path("datasets", dataset, "scenarios"), {}, limit):
            yield document

    async def files(self, dataset: str, *, limit: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """Yield the files of a dataset: path, digest and size in bytes."""
        async for document in pages(self._transport, path("datasets", dataset, "files"), {}, limit):
            yield document

    async def diff(self, name: str, first: str, second: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the files that were added, removed or changed from one version to another."""
        params = {"from": first, "to": second}
        async with self._transport.stream(path("datasets", name, "diff"), params=params) as response:
            async for line in response.aiter_lines():
                if line:
                    yield msgspec.json.decode(line)

    async def delete(self, dataset: str) -> None:
        """Delete a version of a registered dataset."""
        await self._transport.request("DELETE", path("datasets", dataset))

    async def tag(self, name: str, tag: str, version: str) -> None:
        """Let a tag refer to a version."""
        await self._transport.request("PUT", path("datasets", name, "tags", tag), json={"version": version})
