"""Models: received as a stream, named by content, never parsed here; registered models and the shipped baselines."""

import builtins
import hashlib
import json
import re
import secrets
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, Unpack

from common.errors import (
    DigestMismatch,
    InUse,
    Invalid,
    NotFound,
    NotPermitted,
    ShippedModel,
    StoreUnavailable,
    TooLarge,
    UnknownFormat,
    UnknownModel,
)
from common.file_reading import refuse_unreadable
from common.ids import new_id
from common.near_names import near_names, suggestion
from core.domain.access.references import local_reference, scope_of_owner, shared_name, split_reference
from core.domain.access.roles import Verb
from core.domain.access.scopes import Caller, ReadScope, Scope
from core.domain.access.shared_kinds import SharedKind
from core.domain.submissions.records import Model
from core.domain.submissions.stored_documents import load_document
from core.domain.submissions.tags import MOST_LISTED, check_tag, check_tags, unknown_version
from core.services.access.shared_references import checked_version, find_readable, tags_of_rows
from core.services.block_checksums import BlockChecksums, verified
from core.services.orphan_search import OrphanSearch
from core.services.uploads import shipped_models
from core.services.uploads.declared_dependencies import case_of, declared, dependencies_document
from core.services.uploads.disk_floor import DiskFloor
from core.store import bin, comparisons, model_locks, retention
from core.store import models as store
from core.store.bin import BinAct
from core.store.database import Connection, Database
from datasets.nodecache.model_files import is_archive
from datasets.objectstore.base import ObjectStore
from datasets.versions.archives.extraction import check_size_of_files, tar_names
from runtimes import catalogue, environments, formats
from runtimes.packages.package_case import PackageCase

#: Lock under which bytes and rows of models are changed together.
BYTES = "models"
#: The format of what a gang runs and no other format claims.
GANG_PROGRAM = "gang_program"
#: Seconds in which the download of a presigned URL must begin.
LINK_EXPIRY = 900
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHIPPED = "it ships with the platform, in one version without tags"


def key_of(digest: str) -> str:
    """Return the key of a model's bytes in the object store."""
    return f"models/{digest.removeprefix('sha256:')}"


def pinned(name: str, digest: str) -> str:
    """Return the reference to exactly the content of a digest, under this name: equal files may have several."""
    return f"{name}@{digest}"


class Properties(TypedDict, total=False):
    """What is known of a model that is registered, besides its bytes; each may be left out."""

    #: The name; if it is left out or None, that of the file.
    name: str | None
    filename: str | None
    #: The format; if it is left out or None, it is detected from the bytes.
    format: str | None
    #: The runtime that the model is meant for.
    runtime: str | None
    #: Whether a gang runs it: a file of no known format is a gang program then.
    gang: bool
    #: The digest that the bytes must have.
    digest: str | None
    #: The reference that it is imported by and what that resolved to.
    source: Mapping[str, object] | None
    #: Tags to set on the version, also on one that has these bytes already.
    tags: Sequence[str]


class Models:
    """Registered models and the shipped ones. Bytes are written to a draft file, then to the object store.

    ``largest``: maximum of bytes of a model, whichever way it is sent; ``largest_unpacked``: of an archive's files.
    """

    def __init__(
        self,
        database: Database,
        store: ObjectStore,
        scratch: Path,
        *,
        largest: int = 4 << 30,
        largest_unpacked: int = 4 << 30,
        floor: DiskFloor | None = None,
    ) -> None:
        self.largest = largest
        self._largest_unpacked = largest_unpacked
        self._floor = floor or DiskFloor()
        self._database = database
        self._store = store
        self._scratch = scratch
        self._stored: set[str] = set()  # names of the shipped models that this process has written to the object store
        self._checksums = BlockChecksums()
        self._orphan_search = OrphanSearch()

    def add(
        self,
        caller: Caller,
        chunks: Iterable[bytes],
        **properties: Unpack[Properties],
    ) -> Model:
        """Register a model; its format is detected from its bytes unless named. A refused model leaves nothing."""
        caller.require(Verb.UPLOAD)  # also of a model that comes with a submission
        name, filename, runtime = properties.get("name"), properties.get("filename"), properties.get("runtime")
        name = name and local_reference(name, caller.scope.project)
        digest, source = properties.get("digest"), properties.get("source")
        tags = check_tags(properties.get("tags", ()))
        if name is not None and not _NAME.fullmatch(name):
            raise Invalid(
                "A model's name has up to 100 letters, digits, dots, dashes and underscores,"
                " and begins with a letter or digit."
            )
        if name in shipped_models.shipped():
            raise ShippedModel(f"{name!r} is the name of a model that ships with the platform. Use another name.")
        if name is not None:
            caller.patterns.require(SharedKind.MODELS, name)
        self._scratch.mkdir(parents=True, exist_ok=True)
        draft = self._scratch / secrets.token_hex(8)
        hasher = hashlib.sha256()
        size = 0
        try:
            with open(draft, "xb") as file:
                for chunk in self._floor.watched(chunks):
                    hasher.update(chunk)
                    size += len(chunk)
                    self.check_size(size)
                    file.write(chunk)
            if size == 0:
                raise Invalid("The model is empty.")
            actual = "sha256:" + hasher.hexdigest()
            if digest not in {None, actual}:
                raise DigestMismatch(f"The bytes that came have the digest {actual}.")
            unpacked = self._largest_unpacked
            with refuse_unreadable("The model"):
                named, gang = properties.get("format"), properties.get("gang", False)
                format = format_of(draft, filename, named, runtime, gang=gang, largest_unpacked=unpacked)
                check_size(format, size, draft, largest_unpacked=unpacked)
                declaration = declared(draft, format, largest=unpacked)
            if name is None:
                name = name_of(filename, actual)
                caller.patterns.require(SharedKind.MODELS, name)
            values = {"name": name, "digest": actual, "format": format, "size": size, "runtime": runtime}
            values["filename"] = filename and filename[:255]
            values["dependencies"] = json.dumps(dependencies_document(declaration)) if declaration is not None else None
            values["source"] = json.dumps(source) if source is not None else None
            with self._database.read() as c:
                store.room(c, caller.scope, caller.name, actual, size)
            self._store.put(key_of(actual), self._floor.watched(_pieces(draft)))
            with self._database.exclusive(BYTES):
                if not self._is_stored(actual):  # a deletion removed the bytes between that moment and this one
                    self._store.put(key_of(actual), _pieces(draft))
                return self._register(caller, values, tags)
        finally:
            draft.unlink(missing_ok=True)

    def _is_stored(self, digest: str) -> bool:
        try:
            self._store.size(key_of(digest))
        except NotFound:
            return False
        return True

    def check_size(self, size: int) -> None:
        """Raise TooLarge if a model of ``size`` bytes is larger than any model may be."""
        if size > self.largest:
            raise TooLarge(
                f"A model has at most {self.largest:,} bytes (WINDTUNNEL_MAX_UPLOAD), whichever way it is sent."
            )

    def _register(self, caller: Caller, values: Mapping[str, object], tags: Sequence[str]) -> Model:
        now = datetime.now(UTC)
        row = {"id": new_id(now), "project": caller.scope.owner, "made_by": caller.name, **values}
        row["created_at"] = now.timestamp()

        def write(c: Connection) -> Model:
            version = store.add(c, row)
            for tag in tags:
                _check_holder(c, caller, version.name, tag)
                caller.require_change(version.made_by)
                store.tags.put(c, caller.scope, version.name, tag, version.id)
            return _record(version, store.tags.of_versions(c, caller.scope, [version.id]), caller)

        return self._database.write(write)

    def get(self, caller: Caller, ref: str) -> Model:
        """Return the model with this id, digest, name, ``name@version`` or ``name@tag``, or a shipped model.

        ``name@digest`` (`pinned`) is the content of the digest, under this name if it has that here.
        """
        shipped = shipped_models.find(ref)
        with self._database.read() as c:
            if shipped is None:
                row = find_readable(c, caller, SharedKind.MODELS, ref, store.find)
            else:
                row = checked_version(c, caller, SharedKind.MODELS, store.find(c, caller.scope, ref))
            tags = store.tags.of_versions(c, Scope(row.project), [row.id]) if row is not None else {}
        if row is not None and "@sha256:" not in ref:
            return _record(row, tags, caller)
        if row is not None and (shipped is None or ref != pinned(shipped.name, shipped.digest)):
            return _record(row, tags, caller)
        if shipped is not None:
            return self._ship(shipped)
        raise self._unknown(caller, ref)

    def _unknown(self, caller: Caller, ref: str) -> UnknownModel:
        name, at, selector = ref.rpartition("@")
        if selector.startswith("sha256:"):  # a retry or a re-run refers to models by their digests
            return UnknownModel(
                f"This server has no model with the digest {selector[:100]}. Upload it first (`POST /v1/models`; "
                "archives of simulations have the file in model/), then send this request again.",
                digest=selector[:100],
            )
        return self._unknown_version(caller, name, selector) if at else self._unknown_name(caller, ref)

    def _unknown_version(self, caller: Caller, name: str, version: str) -> UnknownModel:
        with self._database.read() as c:
            present = find_readable(c, caller, SharedKind.MODELS, name, store.find)
            if present is not None:
                tags = store.tags.of_name(c, Scope(present.project), present.name, MOST_LISTED + 1)
        if present is not None:
            return UnknownModel(unknown_version("model", name, version, tags))
        if name in shipped_models.shipped():
            return UnknownModel(f"The model {name} has no version {version[:80]!r}: {_SHIPPED}.")
        return self._unknown_name(caller, name)

    def _unknown_name(self, caller: Caller, name: str) -> UnknownModel:
        with self._database.read() as c:
            known = [*store.names(c, caller.scope), *shipped_models.shipped()]
        near = near_names(name, known)
        hint = suggestion(near, "`GET /v1/models` lists them.")
        return UnknownModel(f"There is no model {name[:100]!r}. {hint}", nearest=near)

    def baseline(self, name: str) -> Model:
        """Return the shipped model of this name, even if an earlier version registered a model with the same name."""
        return self._ship(shipped_models.describe(name))

    def _ship(self, model: Model) -> Model:
        """Write the bytes of a shipped model to the object store, from which they are served and staged."""
        if model.name not in self._stored:
            try:
                store_shipped(self._store, model.digest)
            except StoreUnavailable:  # staging stores it again: what is shipped cannot be lost
                return model
            self._stored.add(model.name)
        return model

    def is_stored(self, model: Model) -> bool:
        """Return whether a model's bytes are in the object store, as far as this process knows."""
        return not model.baseline or model.name in self._stored

    def list(
        self,
        caller: Caller,
        *,
        name: str | None = None,
        format: str | None = None,
        baseline: bool | None = None,
        shared: bool = False,
        after: str | None = None,
        limit: int = 50,
    ) -> tuple[list[Model], str | None]:
        """Return a page of models and the cursor of the next page: registered ones, newest first, then shipped ones.

        ``baseline`` selects the shipped ones or the others; ``shared``, in place of both, what others share with the
        caller's project. The cursor is the id of the page's last model.
        """
        if shared:
            return self._page_of_others(caller, name, format, after, limit) if not baseline else ([], None)
        models: list[Model] = []
        in_shipped = after in shipped_models.shipped()
        if not baseline and not in_shipped:
            with self._database.read() as c:
                rows = store.page(c, caller.scope, name=name, format=format, after=after, limit=limit + 1)
                tags = store.tags.of_versions(c, caller.scope, [row.id for row in rows])
            models += [_record(row, tags, caller) for row in rows]
        if baseline is not False and len(models) <= limit:
            start = after if in_shipped else None
            models += shipped_models.page(name=name, format=format, after=start, limit=limit + 1 - len(models))
        return models[:limit], models[limit - 1].id if len(models) > limit else None

    def _page_of_others(
        self, caller: Caller, name: str | None, format: str | None, after: str | None, limit: int
    ) -> tuple[builtins.list[Model], str | None]:
        owner, own_name = split_reference(name or "")
        scope = ReadScope(caller.scope.project or "", owner)
        with self._database.read() as c:
            rows = store.page_of_others(c, scope, name=own_name or None, format=format, after=after, limit=limit + 1)
            tags = tags_of_rows(c, SharedKind.MODELS, rows)
        return [_record(row, tags, caller) for row in rows[:limit]], rows[limit - 1].id if len(rows) > limit else None

    def tag(self, caller: Caller, name: str, tag: str, version: str) -> Model:
        """Let a tag refer to a version: a number, another tag, `latest` or a digest. Raise UnknownModel.

        Simulations keep the version to which ``name@tag`` was resolved when they were submitted.
        """
        check_tag(tag)
        ref = f"{name}@{version}"

        def write(c: Connection) -> str | None:
            row = store.find(c, caller.scope, ref)
            # A digest is found under other names too, and a deletion may have removed the row in between.
            if row is None or row.name != name or not store.hold_version(c, caller.scope, row.id):
                return None
            caller.require_change(row.made_by)
            checked_version(c, caller, SharedKind.MODELS, row)
            _check_holder(c, caller, name, tag)
            store.tags.put(c, caller.scope, name, tag, row.id)
            return str(row.id)

        if (id := self._database.write(write)) is None:
            if name in shipped_models.shipped():
                raise ShippedModel(f"The model {name} cannot have tags: {_SHIPPED}.")
            raise self._unknown_version(caller, name, version)
        return self.get(caller, id)

    def untag(self, caller: Caller, name: str, tag: str) -> None:
        """Delete a tag; the version that it refers to stays. Raise NotFound."""

        def write(c: Connection) -> bool:
            _check_holder(c, caller, name, tag)
            return store.tags.drop(c, caller.scope, name, tag)

        if not self._database.write(write):
            raise NotFound(f"The model {name[:100]!r} has no tag {tag[:100]!r}.")

    def delete(self, caller: Caller, ref: str) -> None:
        """Delete a registered model, or put it into the bin.

        Raise InUse if a simulation or a comparison that has not ended uses it.
        """
        with self._database.read() as c:
            row = store.find(c, caller.scope, local_reference(ref, caller.scope.project))
            checked_version(c, caller, SharedKind.MODELS, row)
            shared = None if row is not None else find_readable(c, caller, SharedKind.MODELS, ref, store.find)
        if row is None:
            if shared is not None:
                raise NotPermitted(f"{ref[:100]!r} belongs to {shared.project}, which shares it to be read.")
            if shipped_models.find(ref) is not None:
                raise ShippedModel(f"The model {ref[:100]!r} ships with the platform; it cannot be deleted.")
            raise self._unknown(caller, ref)

        caller.require_change(row.made_by)

        def remove(c: Connection) -> bool:
            store.lock(c, caller.scope, row.id)
            if user := store.busy(c, caller.scope, row.digest):
                raise InUse(f"Simulation {user} still needs this model. Cancel it first.", simulation=user)
            if user := comparisons.needing_model(c, caller.scope, row.digest):
                raise InUse(f"Comparison {user} still needs this model. Cancel it first.", comparison=user)
            if retention.find(c, caller.scope).bin:
                store.into_bin(c, caller.scope, row.id, BinAct(self._database.now(c), caller.name))
                return False
            return store.delete(c, caller.scope, row.id)

        with self._database.exclusive(BYTES):
            if self._database.write(remove) and shipped_models.find(row.digest) is None:
                self._store.delete(key_of(row.digest))

    def purge(self, scope: Scope, id: str) -> None:
        """Take a model out of the bin for good, and delete bytes that nothing refers to. Raise NotFound."""

        def write(c: Connection) -> str | None:
            if (item := bin.take(c, scope, id)) is None:
                raise NotFound(f"There is no model {id[:64]!r} in the bin.")
            return item.digest if store.purge(c, item) else None

        with self._database.exclusive(BYTES):
            digest = self._database.write(write)
            if digest is not None and shipped_models.find(digest) is None:
                self._store.delete(key_of(digest))

    @staticmethod
    def keep(c: Connection, scope: Scope, model: Model) -> None:
        """Lock a model against deletion until the transaction ends. Raise UnknownModel if it was deleted."""
        scope, _ = scope_of_owner(model.name, scope)
        if not model.baseline and not store.hold(c, scope, model.digest):
            raise UnknownModel(f"The model {model.name} was deleted a moment ago.")

    def sweep(self) -> int:
        """Once an hour, remove the orphans; return their number."""
        return self.remove_orphans() if self._orphan_search.begin() else 0

    def remove_orphans(self) -> int:
        """Delete bytes that no row refers to; return the number of objects. Lists all models.

        They are left by a process that was killed between bytes and row, and by the deletion of the last simulation
        with a model that had been deleted before.
        """
        removed = 0
        for key in self._store.list("models/"):
            digest = f"sha256:{key.removeprefix('models/')}"
            if shipped_models.find(digest) is not None:
                continue
            with self._database.read() as c:
                needed = store.needed(c, digest)
            if not needed:
                removed += self._remove_orphan(key, digest)
        return removed

    def _remove_orphan(self, key: str, digest: str) -> int:
        with self._database.exclusive(BYTES):
            with self._database.read() as c:
                if store.needed(c, digest):
                    return 0
            self._store.delete(key)
        return 1

    def case(self, model: Model) -> PackageCase:
        """Return the case of a packaged simulator that a model is. Raise BadRequirements."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        draft = self._scratch / secrets.token_hex(8)
        try:
            with open(draft, "xb") as file:
                file.writelines(self.content(model))
            return case_of(draft, largest=self._largest_unpacked)
        finally:
            draft.unlink(missing_ok=True)

    def lock(self, model: Model) -> str | None:
        """Return the lock of a model's dependencies on this platform; None if they were not resolved yet."""
        with self._database.read() as c:
            return model_locks.find(c, model.digest, environments.target())

    def content(self, model: Model, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Yield a model's bytes from ``start`` up to, but not including, ``stop``."""
        key = key_of(model.digest)
        if start == 0 and stop in {None, model.size}:
            return verified(self._store.get(key), model.digest, model.name)
        end = model.size if stop is None else stop
        return self._checksums.read(
            lambda first, last: self._store.get(key, first, last - first),
            model.digest,
            model.size,
            start,
            end,
            model.name,
        )

    def link(self, model: Model) -> str | None:
        """Return a presigned URL of a model's bytes; None if the object store has no such URLs."""
        return self._store.link(key_of(model.digest), seconds=LINK_EXPIRY, filename=model.filename or model.name)


def _check_holder(c: Connection, caller: Caller, name: str, tag: str) -> None:
    """Raise NotPermitted for a tag on a version that is not the caller's, unless he may change everybody's."""
    if (row := store.find(c, caller.scope, f"{name}@{tag}")) is not None:
        caller.require_change(row.made_by)
        checked_version(c, caller, SharedKind.MODELS, row)


def name_of(filename: str | None, digest: str) -> str:
    """Return the name of a model that was sent without one: that of its file, without characters that names lack.

    A part of the digest is added where letters are lost, such as Greek ones, or a shipped model has the name: a name
    that the platform chose must not be the reason for a refusal, nor mix up models whose names differ.
    """
    decomposed = unicodedata.normalize("NFKD", Path(filename or "").stem)
    plain = "".join(char for char in decomposed if not unicodedata.combining(char))
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip(".-_")[:80]
    lost = any(char.isalpha() and not char.isascii() for char in plain)
    if stem and not lost and stem not in shipped_models.shipped():
        return stem
    return f"{stem or 'model'}-{digest[7:19]}"


def format_of(
    path: Path,
    filename: str | None,
    format: str | None,
    runtime: str | None,
    *,
    gang: bool = False,
    largest_unpacked: int,
) -> str:
    """Return the format that was named, or else the detected one; raise UnknownFormat or UnknownRuntime.

    A file of no known format is of the format of the named runtime, if that has one only; for a gang, a gang program.
    """
    accepted = list(catalogue.runtime(runtime).formats) if runtime is not None else [GANG_PROGRAM] if gang else []
    if format is None:
        default = accepted[0] if len(accepted) == 1 else None
        return formats.detect(path, filename, default=default, members=tar_names(path, largest=largest_unpacked))
    if format not in formats.formats():
        near = near_names(format, formats.formats())
        hint = suggestion(near, f"There are: {formats.listed()}.")
        raise UnknownFormat(f"There is no format {format[:80]!r}. {hint}", nearest=near)
    return format


def check_size(format: str, size: int, path: Path, *, largest_unpacked: int) -> None:
    """Raise TooLarge if a model has more bytes than its format allows; of an archive, the server's limits count."""
    model_format = formats.formats()[format]
    most = model_format.max_size
    if model_format.unpacked and is_archive(path):
        check_size_of_files(path, largest=largest_unpacked)
    elif most is not None and size > most:
        raise TooLarge(f"The model has {size:,} bytes; a file of the format {format} has at most {most:,}.")


def store_shipped(store: ObjectStore, digest: str) -> None:
    """Store the shipped model with this digest, if there is one."""
    if (model := shipped_models.find(digest)) is not None:
        store.put(key_of(digest), (shipped_models.shipped()[model.name].read_bytes(),))


def _pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            yield piece


def _record(row: store.ModelRow, tags: Mapping[str, Sequence[str]], caller: Caller) -> Model:
    """Return the record of a row, with the name that it has for the caller; ``tags``: of several rows, by id."""
    return Model(
        id=row.id,
        name=shared_name(row.project, row.name, caller.scope.project),
        version=row.version,
        digest=row.digest,
        format=row.format,
        size=row.size,
        filename=row.filename,
        runtime=row.runtime,
        created_at=datetime.fromtimestamp(row.created_at, UTC),
        dependencies=load_document(row.dependencies) if row.dependencies else None,
        source=load_document(row.source) if row.source else None,
        tags=tags.get(row.id, ()),
    )
