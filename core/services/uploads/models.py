"""Models: taken in as a stream, named by content, never looked into here; and those that ship with the platform."""

import difflib
import functools
import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.domain.ids import digest_of, new_id
from core.domain.records import Model
from core.services.uploads.checksum_stream import verified
from core.store import models as store
from core.store.database import Database
from datasets.objectstore.base import ObjectStore
from errors import DigestMismatch, InUse, Invalid, UnknownFormat, UnknownModel
from runtimes import catalogue

PROJECT = "default"
SHIPPED = Path(catalogue.__file__).parent / "baselines"
#: Seconds in which the download of a linked object must begin.
LINKED = 900
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def key_of(digest: str) -> str:
    """Where a model's bytes lie in the object store."""
    return f"models/{digest.removeprefix('sha256:')}"


class Models:
    """The models a person registered, and the shipped ones. Bytes go to the object store as they come."""

    def __init__(self, database: Database, store: ObjectStore, scratch: Path) -> None:
        self._database = database
        self._store = store
        self._scratch = scratch
        self._shipped: dict[str, Model] = {}  # by name, once this process has put them into the store

    def add(
        self,
        chunks: Iterable[bytes],
        *,
        filename: str | None = None,
        name: str | None = None,
        format: str | None = None,
        runtime: str | None = None,
        digest: str | None = None,
    ) -> Model:
        """Take a model in; its format is told from its bytes unless named. Nothing is kept of one that is refused."""
        if name is not None and not _NAME.fullmatch(name):
            raise Invalid(
                "A model's name has up to 100 letters, digits, dots, dashes and underscores,"
                " and begins with a letter or digit."
            )
        self._scratch.mkdir(parents=True, exist_ok=True)
        draft = self._scratch / secrets.token_hex(8)
        hasher = hashlib.sha256()
        size = 0
        try:
            with open(draft, "xb") as file:
                for chunk in chunks:
                    hasher.update(chunk)
                    size += len(chunk)
                    file.write(chunk)
            if size == 0:
                raise Invalid("The model is empty.")
            found = "sha256:" + hasher.hexdigest()
            if digest not in {None, found}:
                raise DigestMismatch(f"The bytes that came have the digest {found}.")
            digest = found
            format = self._format(draft, filename, format, runtime)
            self._store.put(key_of(digest), _pieces(draft))
        finally:
            draft.unlink(missing_ok=True)
        if name is None:
            stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(filename or "").stem).strip(".-_")[:80]
            name = stem or f"model-{digest[7:19]}"
        return self._register(name, digest, format, size, filename, runtime)

    def _register(
        self, name: str, digest: str, format: str, size: int, filename: str | None, runtime: str | None
    ) -> Model:
        now = datetime.now(UTC)
        values = {"id": new_id(now), "project": PROJECT, "name": name, "digest": digest, "format": format, "size": size}
        values |= {"filename": filename and filename[:255], "runtime": runtime, "created_at": now.timestamp()}
        return _record(self._database.write(lambda c: store.add(c, values)))

    @staticmethod
    def _format(path: Path, filename: str | None, format: str | None, runtime: str | None) -> str:
        taken = catalogue.runtime(runtime).formats if runtime is not None else None
        if format is not None:
            if format not in catalogue.formats():
                raise UnknownFormat(
                    f"There is no format {format[:80]!r}; there are: {', '.join(sorted(catalogue.formats()))}."
                )
            return format
        found = catalogue.sniff(path, filename)
        if found is None and taken is not None and len(taken) == 1:
            return next(iter(taken))
        if found is None:
            raise catalogue.unknown(path)
        return found

    def get(self, ref: str) -> Model:
        """Return the model that an id, digest, name or ``name@version`` refers to; a shipped one by its name."""
        with self._database.read() as c:
            row = store.find(c, PROJECT, ref)
            known = store.names(c, PROJECT) if row is None else []
        if row is not None:
            return _record(row)
        shipped_models = shipped()
        if ref in shipped_models:
            return self._ship(ref, shipped_models[ref])
        if ref.startswith("sha256:"):  # a retry or a re-run pins a shipped model by its content
            for name, path in shipped_models.items():
                if digest_of(path.read_bytes()) == ref:
                    return self._ship(name, path)
        near = difflib.get_close_matches(ref, [*known, *shipped_models], 3)
        hint = f" Did you mean {' or '.join(near)}?" if near else " `GET /v1/models` lists them."
        raise UnknownModel(f"There is no model {ref[:100]!r}.{hint}", nearest=near)

    def baseline(self, name: str) -> Model:
        """Return a shipped model; one of a person's own that goes by its name is not meant."""
        return self._ship(name, shipped()[name])

    def _ship(self, name: str, path: Path) -> Model:
        if (known := self._shipped.get(name)) is not None:
            return known
        content = path.read_bytes()
        digest = digest_of(content)
        self._store.put(key_of(digest), (content,))
        self._shipped[name] = Model(
            id=name,
            name=name,
            version=1,
            digest=digest,
            format=catalogue.sniff(path, path.name) or "python",
            size=len(content),
            filename=path.name,
            runtime=None,
            created_at=datetime.fromtimestamp(0, UTC),
            baseline=True,
        )
        return self._shipped[name]

    def list(
        self, *, name: str | None = None, format: str | None = None, after: str | None = None, limit: int = 50
    ) -> tuple[list[Model], str | None]:
        """Return a page of registered models, newest first, and the cursor of the next."""
        with self._database.read() as c:
            rows = store.page(c, PROJECT, name=name, format=format, after=after, limit=limit + 1)
        found = [_record(row) for row in rows[:limit]]
        return found, found[-1].id if len(rows) > limit else None

    def delete(self, ref: str) -> None:
        """Delete a model, unless a simulation that has not ended needs it."""
        with self._database.read() as c:
            row = store.find(c, PROJECT, ref)
        if row is None:
            raise UnknownModel(f"There is no registered model {ref[:100]!r}.")

        def remove(c: Any) -> bool:
            if user := store.busy(c, row.digest):
                raise InUse(f"Simulation {user} still needs this model. Cancel it first.", simulation=user)
            return store.delete(c, row.id)

        if self._database.write(remove) and not _is_shipped(row.digest):
            self._store.delete(key_of(row.digest))

    def content(self, model: Model, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Yield a model's bytes from start up to, not including, stop."""
        chunks = self._store.get(key_of(model.digest), start, None if stop is None else stop - start)
        return verified(chunks, model.digest, model.name) if start == 0 and stop in {None, model.size} else chunks

    def link(self, model: Model) -> str | None:
        """Return where a model's bytes can be had without passing through here; None where the store has no links."""
        return self._store.link(key_of(model.digest), seconds=LINKED, filename=model.filename or model.name)


@functools.cache
def shipped() -> dict[str, Path]:
    """Return the shipped models by name: a file's stem where that is one file's alone, else its whole name."""
    files = sorted(path for path in SHIPPED.rglob("*") if path.suffix in {".py", ".onnx", ".tflite", ".keras"})
    # The scripts that trained a model lie beside it; a model in python is what holds a class Model.
    files = [path for path in files if path.suffix != ".py" or "\nclass Model" in path.read_text()]
    stems = [path.stem for path in files]
    return {path.stem if stems.count(path.stem) == 1 else path.name: path for path in files}


def _is_shipped(digest: str) -> bool:
    """Tell whether a shipped model has this content; those have no rows, and their bytes stay."""
    return any(digest_of(path.read_bytes()) == digest for path in shipped().values())


def _pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            yield piece


def _record(row: Any) -> Model:
    return Model(
        id=row.id,
        name=row.name,
        version=row.version,
        digest=row.digest,
        format=row.format,
        size=row.size,
        filename=row.filename,
        runtime=row.runtime,
        created_at=datetime.fromtimestamp(row.created_at, UTC),
    )
