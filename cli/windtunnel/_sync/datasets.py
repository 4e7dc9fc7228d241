# Generated from windtunnel/_async/datasets.py by scripts/sync_client.py; change that file.
"""Datasets of a platform: versions, scenarios, files, differences; folders sent and brought back by digest."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from windtunnel import tables
from windtunnel._sync.pages import pages
from windtunnel._sync.transport import Transport, lines_of, path
from windtunnel._sync.uploads import Progress, Uploads
from windtunnel.contents import BytesContent
from windtunnel.errors import Refused, WindtunnelError
from windtunnel.folder_contents import FolderArchive, manifest, manifest_lines, safe_target, scan
from windtunnel.model_sources import content_digest, file_digest
from windtunnel.received_files import is_hidden, refuse_replaced
from windtunnel.records import Dataset, read

#: Lines of a manifest that a request may have; a longer manifest is an upload.
MOST_LINES = 10_000
#: Files that a page of them may have.
MOST_FILES = 1000
#: Seconds between two looks at a registration.
LOOK_INTERVAL = 0.3


class Datasets:
    """Datasets of one platform. A dataset is named by name, ``name@version``, ``name@tag``, id or digest."""

    def __init__(self, transport: Transport, uploads: Uploads) -> None:
        self._transport = transport
        self._uploads = uploads

    def list(self, *, shared: bool | None = None, limit: int | None = None) -> Iterator[Dataset]:
        """Yield datasets, the built-in ones first, each at its latest version.

        ``shared``: only those that other projects share with yours, which are named ``owner/name``.
        """
        for document in pages(self._transport, path("datasets"), {"shared": shared}, limit):
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
        for document in pages(self._transport, path("datasets", dataset, "files"), {}, limit, MOST_FILES):
            yield document

    def diff(self, name: str, first: str, second: str) -> Iterator[dict[str, Any]]:
        """Yield the files that were added, removed or changed from one version to another."""
        params = {"from": first, "to": second}
        with self._transport.stream(path("datasets", name, "diff"), params=params) as response:
            for line in lines_of(response):
                if line:
                    yield msgspec.json.decode(line)

    def register(self, name: str, source: Mapping[str, Any], *, tags: Sequence[str] = ()) -> Dataset:
        """Register a dataset or its next version from a ``source`` of the API, and return it when it is ready.

        Raise WindtunnelError with the reason if it cannot be registered.
        """
        body = {"name": name, "source": dict(source), "tags": list(tags)}
        # The same content again is the same version, so the request may be repeated.
        document = self._transport.json("POST", path("datasets"), json=body, repeatable=True)
        version = path("datasets", document["id"])
        while document["state"] == "registering":
            time.sleep(LOOK_INTERVAL)
            document = self._transport.json("GET", version)
        if document["state"] != "ready":
            raise WindtunnelError(
                f"{name} cannot be registered: {document.get('reason')} {document.get('next_step') or ''}".rstrip()
            )
        return read(Dataset, document)

    def push(
        self,
        folder: str | os.PathLike[str],
        name: str,
        *,
        like: Sequence[str] = (),
        tags: Sequence[str] = (),
        scanned: Progress | None = None,
        sent: Progress | None = None,
    ) -> Dataset:
        """Send a folder as the next version of a dataset: only the contents that it does not have yet.

        What the dataset's latest version has, and the datasets ``like``, is not sent. ``scanned`` and ``sent`` are
        called with the bytes read, or sent, and the total. A broken upload continues, also in another process.
        """
        source = Path(folder)
        files = scan(source, scanned)
        known: set[str] = set()
        for dataset in (name, *like):
            known |= self._digests(dataset, missing_is_error=dataset != name)
        archive = FolderArchive(source, files, {file.digest for file in files} - known)
        body: dict[str, Any] = {}
        if len(files) > MOST_LINES:
            lines = BytesContent(f"{name}.ndjson", manifest_lines(files))
            body["manifest_upload"] = self._uploads.send(lines)
        else:
            body["manifest"] = manifest(files)
        if archive.contents:
            body["upload"] = self._uploads.send(archive, progress=sent)
        return self.register(name, body, tags=tags)

    def _digests(self, dataset: str, *, missing_is_error: bool) -> set[str]:
        """Return the digests of the contents of a dataset; none for a built-in one, which nothing can be taken from."""
        try:
            if not (self.get(dataset)).registered:
                return set()
            return {file["digest"] for file in self.files(dataset)}
        except Refused as error:
            if missing_is_error or error.type not in {"unknown-dataset", "not-ready", "not-found"}:
                raise
            return set()

    def pull(
        self,
        dataset: str,
        folder: str | os.PathLike[str],
        *,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> tuple[int, int]:
        """Write the files of a dataset into a folder; return how many were written, and how many were there already.

        A file with the same content is left as it is. Unless ``replace``, nothing is written if another file has the
        name of one, or if one is hidden and the folder has files. ``progress`` is called with the bytes and the total.
        Each file is compared with its digest before it gets its name.
        """
        target = Path(folder)
        files = [file for file in self.files(dataset)]
        places = {file["path"]: safe_target(target, file["path"]) for file in files}
        lacking = {file["path"] for file in files if not _has(places[file["path"]], file)}
        if not replace and target.is_dir() and any(target.iterdir()):
            refuse_replaced(target, (name for name in lacking if places[name].exists() or is_hidden(name)))
        total, done = sum(file["size"] for file in files), 0
        for file in files:
            if file["path"] in lacking:
                place = places[file["path"]]
                place.parent.mkdir(parents=True, exist_ok=True)
                self._fetch(dataset, file, place)
            done += file["size"]
            if progress is not None:
                progress(done, total)
        return len(lacking), len(files) - len(lacking)

    def _fetch(self, dataset: str, file: Mapping[str, Any], place: Path) -> None:
        address = path("datasets", dataset, "files") + "/" + quote(file["path"])
        with tables.draft_of(place) as draft:
            self._transport.save(address, draft.write, rewind=lambda: tables.rewind(draft))
            draft.flush()
            if content_digest(draft) != file["digest"]:
                raise WindtunnelError(f"The bytes of {file['path']} do not have its digest; pull the dataset again.")

    def delete(self, dataset: str) -> None:
        """Delete a version of a registered dataset, ``name@version``; of a name alone, all versions."""
        self._transport.request("DELETE", path("datasets", dataset))

    def tag(self, name: str, tag: str, version: str) -> None:
        """Let a tag refer to a version."""
        self._transport.request("PUT", path("datasets", name, "tags", tag), json={"version": version})

    def untag(self, name: str, tag: str) -> None:
        """Delete a tag; the version that it refers to stays."""
        self._transport.request("DELETE", path("datasets", name, "tags", tag))


def _has(place: Path, file: Mapping[str, Any]) -> bool:
    """Return whether a place has the content of a file already."""
    return place.is_file() and place.stat().st_size == file["size"] and file_digest(place) == file["digest"]
