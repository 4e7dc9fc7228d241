# Generated from windtunnel/_async/datasets.py by scripts/sync_client.py; change that file.
"""Datasets of a platform: versions, scenarios, files, differences."""

from collections.abc import Iterator
from typing import Any

import msgspec

from windtunnel._sync.pages import pages
from windtunnel._sync.transport import Transport, path
from windtunnel.records import Dataset, read


class Datasets:
    """Datasets of one platform. A dataset is named by name, ``name@version``, ``name@tag``, id or digest."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None) -> Iterator[Dataset]:
        """Yield datasets, the built-in ones first, each at its latest version."""
        for document in pages(self._transport, path("datasets"), {}, limit):
            yield read(Dataset, document)

    def get(self, dataset: str) -> Dataset:
        """Return a dataset, with the model's interface, its metrics and its parameters."""
        return read(Dataset, self._transport.json("GET", path("datasets", dataset)))

    def versions(self, name: str, *, limit: int | None = None) -> Iterator[Dataset]:
        """Yield the versions of a registered dataset, the newest first."""
        for document in pages(self._transport, path("datasets", name, "versions"), {}, limit):
            yield read(Dataset, document)

    def scenarios(self, dataset: str, *, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the scenarios of a dataset, in order."""
        for document in pages(self._transport, path("datasets", dataset, "scenarios"), {}, limit):
            yield document

    def files(self, dataset: str, *, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the files of a dataset: path, digest and size in bytes."""
        for document in pages(self._transport, path("datasets", dataset, "files"), {}, limit):
            yield document

    def diff(self, name: str, first: str, second: str) -> Iterator[dict[str, Any]]:
        """Yield the files that were added, removed or changed from one version to another."""
        params = {"from": first, "to": second}
        with self._transport.stream(path("datasets", name, "diff"), params=params) as response:
            for line in response.iter_lines():
                if line:
                    yield msgspec.json.decode(line)

    def delete(self, dataset: str) -> None:
        """Delete a version of a registered dataset."""
        self._transport.request("DELETE", path("datasets", dataset))

    def tag(self, name: str, tag: str, version: str) -> None:
        """Let a tag refer to a version."""
        self._transport.request("PUT", path("datasets", name, "tags", tag), json={"version": version})
