"""Models of a platform: uploads, checks, downloads."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from windtunnel import received_files, tables
from windtunnel._async.pages import pages
from windtunnel._async.transport import AsyncTransport, path
from windtunnel._async.uploads import AsyncUploads, Progress
from windtunnel.contents import FileContent
from windtunnel.errors import Refused, WindtunnelError
from windtunnel.model_sources import LocalModel, StoredModel, content_digest, file_digest, pack, source_of
from windtunnel.records import Check, Model, read

#: Seconds between two looks at an import.
LOOK_INTERVAL = 0.5


class AsyncModels:
    """Models of one platform. A model is named by name, ``name@version``, ``name@tag``, id or digest."""

    def __init__(self, transport: AsyncTransport, uploads: AsyncUploads) -> None:
        self._transport = transport
        self._uploads = uploads

    async def list(
        self,
        *,
        name: str | None = None,
        format: str | None = None,
        baseline: bool | None = None,
        shared: bool | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Model]:
        """Yield models, the newest first; those that ship with the platform come last.

        ``shared``: only those that other projects share with yours, which are named ``owner/name``.
        """
        params = {"name": name, "format": format, "baseline": baseline, "shared": shared}
        async for document in pages(self._transport, path("models"), params, limit):
            yield read(Model, document)

    async def get(self, model: str) -> Model:
        """Return a model."""
        return read(Model, await self._transport.json("GET", path("models", model)))

    async def delete(self, model: str) -> None:
        """Delete a model; simulations that have played it keep its bytes."""
        await self._transport.request("DELETE", path("models", model))

    async def tag(self, name: str, tag: str, version: str) -> Model:
        """Let a tag refer to a version (a number, another tag, `latest` or a digest), and return the version."""
        body = {"version": version}
        return read(Model, await self._transport.json("PUT", path("models", name, "tags", tag), json=body))

    async def untag(self, name: str, tag: str) -> None:
        """Delete a tag; the version that it refers to stays."""
        await self._transport.request("DELETE", path("models", name, "tags", tag))

    async def upload(
        self,
        source: str | os.PathLike[str],
        *,
        name: str | None = None,
        format: str | None = None,
        runtime: str | None = None,
        tags: Sequence[str] = (),
        packed: bool = False,
        progress: Progress | None = None,
    ) -> Model:
        """Upload a model file, or a folder as a zip archive, and return the model.

        ``packed``: a file too is sent as an archive, in which it keeps its name.

        Nothing is sent if the platform has the same bytes under the same name. The upload continues after a break.
        ``tags`` refer to the version from then on.
        """
        local = source_of(os.fspath(source))
        if not isinstance(local, LocalModel):
            raise WindtunnelError(f"There is no file {os.fspath(source)}.")
        with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder:
            file = local.path
            if file.is_dir() or packed:
                stem = file.resolve().name if file.is_dir() else file.stem
                file = pack(file, Path(folder) / f"{stem}.zip")
            digest = file_digest(file)
            if runtime is None:
                known = await self._known(name or file.stem, digest, format)
                if known is not None:
                    for tag in tags:
                        known = await self.tag(known.name, tag, str(known.version))
                    return known
            upload = await self._uploads.send(FileContent(file, fingerprint=digest), progress=progress)
            body: dict[str, Any] = {"upload": upload, "digest": digest, "name": name}
            body |= {"format": format, "runtime": runtime, "tags": list(tags) or None}
            sent = {key: value for key, value in body.items() if value is not None}
            # A model that was created twice is another version with the same bytes.
            return read(Model, await self._transport.json("POST", path("models"), json=sent, repeatable=True))

    async def stored(
        self,
        model: str | os.PathLike[str],
        *,
        format: str | None = None,
        packed: bool = False,
        progress: Progress | None = None,
    ) -> str:
        """Return the name by which the platform has a model: of a file after its upload, of a reference after its
        import, of a stored model as it is."""
        source = source_of(model)
        if isinstance(source, StoredModel):
            return source.name
        if isinstance(source, LocalModel):
            sent = await self.upload(source.path, format=format, packed=packed, progress=progress)
        else:
            sent = await self._imported(source.reference)
        return f"{sent.name}@{sent.digest}"

    async def _imported(self, reference: str) -> Model:
        body = {"model_reference": reference}
        document = await self._transport.json("POST", path("imports"), json=body, repeatable=True)
        while document["state"] == "fetching":
            await asyncio.sleep(LOOK_INTERVAL)
            document = await self._transport.json("GET", path("imports", document["id"]))
        if document["state"] != "ready":
            raise WindtunnelError(f"{reference} cannot be imported: {document.get('reason') or document['state']}")
        return await self.get(document["model"])

    async def _known(self, name: str, digest: str, format: str | None) -> Model | None:
        """Return the model of this name with these bytes and, if it is named, this format; None if there is none.

        Also None if the platform has them in several formats, of which a user has named one: then the bytes are sent
        again, and the platform detects the format.
        """
        try:
            model = await self.get(f"{name}@{digest}")
            if (model.name, model.digest) != (name, digest):
                return None
            if format is not None:
                return model if model.format == format else None
            formats = {other.format async for other in self.list(name=name) if other.digest == digest}
        except Refused:  # unknown, or not a name that a model can have
            return None
        return model if len(formats) == 1 else None

    async def check(self, model: str, datasets: Sequence[str] = ()) -> Sequence[Check]:
        """Load a stored model and act for a few real steps of each dataset, or of all that there are."""
        body = {"datasets": list(datasets)} if datasets else {}
        answer = await self._transport.json(
            "POST", path("models", model, "check"), json=body, repeatable=True, timeout=600.0
        )
        return [read(Check, {"format": "", **item}) for item in answer["items"]]

    async def download(
        self,
        model: str,
        target: str | os.PathLike[str] | None = None,
        *,
        progress: Callable[[int, int | None], None] | None = None,
    ) -> Path:
        """Write a model's bytes to a file, by default, and in a folder, one with the name under which it was uploaded.

        Only a file that ``target`` names is replaced. A name that hides the file, such as `.bashrc`, is not used.
        """
        known = await self.get(model)
        file = Path(target or ".")
        named = not file.is_dir()
        if not named:
            file /= received_files.name_of(known.filename, known.name)
            if file.is_file() and not file.is_symlink() and file_digest(file) == known.digest:
                return file
        with tables.draft_of(file, replace=named) as draft:
            await self._transport.save(
                path("models", known.id, "content"),
                draft.write,
                rewind=lambda: tables.rewind(draft),
                progress=progress,
            )
            if content_digest(draft) != known.digest:  # raised here, a file that was there before stays
                raise WindtunnelError(
                    f"The bytes of {model} do not have its digest; nothing was kept. Download it again."
                )
        return file

    async def lock(self, model: str) -> dict[str, Any]:
        """Return the resolved Python packages of a model that declares dependencies."""
        document: dict[str, Any] = await self._transport.json("GET", path("models", model, "lock"))
        return document
