"""Datasets: describe, list, compare, tag, delete; registration is the job in `dataset_registration`."""

import json
import mimetypes
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice

import msgspec
from msgspec.structs import replace

from common.downloads import Download
from common.errors import (
    Corrupt,
    InUse,
    Invalid,
    NotFound,
    NotPermitted,
    NotPlayable,
    NotReady,
    UnknownDataset,
    UnknownFile,
)
from common.ids import new_id
from common.near_names import name_list, near_names, suggestion
from core.domain.access.references import local_reference, scope_of_owner, shared_name, split_reference
from core.domain.access.roles import Verb
from core.domain.access.scopes import Caller, ReadScope, Scope, work_of
from core.domain.access.shared_kinds import SharedKind
from core.domain.submissions.provenance import DatasetVersion, ResolvedDataset
from core.domain.submissions.stored_documents import decode_document
from core.domain.submissions.tags import MOST_LISTED, check_tag, check_tags, unknown_version
from core.notifications.notifier import Notifier
from core.services.access.shared_references import checked_version, find_readable, scope_of_name, tags_of_rows
from core.services.block_checksums import BlockChecksums, verified
from core.services.datasets import catalogue, dataset_sources
from core.services.datasets.dataset_garbage import DatasetGarbage
from core.services.datasets.descriptions import (
    NEXT_STEP,
    brief_document,
    built_in_document,
    differences,
    location,
    moment,
    version_document,
)
from core.services.datasets.file_sources import Sources
from core.services.datasets.source_kinds import source_of_request, stored_source
from core.services.datasets.source_kinds.base import SourceKind
from core.services.unreadable_rows import readable
from core.services.uploads.disk_floor import DiskFloor
from core.services.uploads.uploads import Uploads
from core.store import comparisons, retention
from core.store import datasets as store
from core.store.bin import BinAct
from core.store.database import Connection, Database
from core.store.datasets import DatasetVersionRow
from datasets.catalogue import Dataset, datasets, versions
from datasets.objectstore.base import ObjectStore
from datasets.versions import file_names, manifest_object
from datasets.versions.manifest import ManifestEntry, lines
from datasets.versions.plants import MEMBERS
from datasets.versions.scenarios import extend, non_blank
from datasets.versions.version_description import VersionDescription

#: Form of an id; no dataset may have such a name.
_ID = re.compile(r"[0-9a-hjkmnp-tv-z]{26}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: The built-in dataset below one that has files and no scenarios, and what the description of that would be.
PROGRAM = "program"
_ONLY_FILES: Mapping[str, object] = {"scenarios": None, "title": "", "description": "", "tasks": None}


class Datasets:
    """Service of the datasets API, for built-in and registered datasets."""

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        notifier: Notifier,
        uploads: Uploads,
        sources: Sources,
        floor: DiskFloor | None = None,
    ) -> None:
        self._database = database
        self._objects = objects
        self._notifier = notifier
        self._uploads = uploads
        self._sources = sources
        self._floor = floor or DiskFloor()
        self._checksums = BlockChecksums()
        self.garbage = DatasetGarbage(database, objects)

    # -- registration

    def register(
        self, caller: Caller, name: str, source: Mapping[str, object], tags: Sequence[str] = ()
    ) -> dict[str, object]:
        """Insert a version in the state `registering` and enqueue its job. Raise Invalid for an invalid source."""
        check_name(name)
        chosen = source_of_request(caller, source, self._uploads, self._sources)
        return version_document(self.register_source(caller, name, chosen, tags), [])

    def register_source(
        self, caller: Caller, name: str, chosen: SourceKind, tags: Sequence[str] = ()
    ) -> DatasetVersionRow:
        """Insert a version in the state `registering` and enqueue its job; return its row. Raise Invalid."""
        caller.require(Verb.UPLOAD)
        check_name(name)
        caller.patterns.require(SharedKind.DATASETS, name)
        tags = check_tags(tags)
        self._floor.check()
        row = {
            "id": new_id(datetime.now(UTC)),
            "project": caller.scope.owner,
            "made_by": caller.name,
            "name": name,
            "source": _source_text(chosen),
            "tags": json.dumps(tags),
        }

        def write(c: Connection) -> DatasetVersionRow:
            now = self._database.now(c)
            dataset_sources.hold(c, caller.scope, chosen.upload_ids(), now)
            for tag in tags:
                _check_holder(c, caller, name, tag)
            return store.add(c, row | {"created_at": now})

        added = self._database.write(write)
        self._notifier.enqueue("register", row["id"])
        return added

    def version_of_source(self, caller: Caller, name: str, chosen: SourceKind) -> DatasetVersionRow | None:
        """Return the newest version of exactly this source, in any state but `deleted`; None: there is none.

        Of a version whose content another has already, the other is returned.
        """
        with self._database.read() as c:
            row = store.of_source(c, caller.scope, name, _source_text(chosen))
            return store.by_id(c, caller.scope, row.same_as) if row is not None and row.same_as is not None else row

    # -- queries

    def page(
        self, caller: Caller, *, shared: bool = False, after: str | None = None, limit: int = 50
    ) -> tuple[list[dict[str, object]], str | None]:
        """Return a page of datasets, each at its latest version: built-in ones first, then by name.

        ``shared``: those that others share with the caller's project instead, by owner and name.
        """
        if shared:
            return self._page_of_others(caller, after, limit)
        built_in = [name for name in sorted(datasets()) if after is None or f"~{name}" > after][: limit + 1]
        if after is not None and not after.startswith("~"):
            built_in = []
        after_name = None if after is None or after.startswith("~") else after
        with self._database.read() as c:
            rows = (
                store.latest(c, caller.scope, after_name, limit + 1 - len(built_in)) if len(built_in) <= limit else []
            )
            tags = store.tags.of_versions(c, caller.scope, [row.id for row in rows])
        items = [brief_document(built_in_document(datasets()[name])) for name in built_in]
        cursors = [*(f"~{name}" for name in built_in), *(row.name for row in rows)]
        items += _brief(rows[: max(0, limit - len(built_in))], tags)
        return items[:limit], cursors[limit - 1] if len(cursors) > limit else None

    def _page_of_others(
        self, caller: Caller, after: str | None, limit: int
    ) -> tuple[list[dict[str, object]], str | None]:
        reader = caller.scope.project or ""
        with self._database.read() as c:
            rows = store.latest_of_others(c, ReadScope(reader), split_reference(after or ""), limit + 1)
            tags = tags_of_rows(c, SharedKind.DATASETS, rows)
        named = [replace(row, name=shared_name(row.project, row.name, reader)) for row in rows]
        return _brief(named[:limit], tags), named[limit - 1].name if len(named) > limit else None

    def get(self, caller: Caller, ref: str) -> dict[str, object]:
        """Return the description of a built-in or registered version, in any state."""
        if (built_in := find_built_in(ref)) is not None:
            return built_in_document(built_in)
        row = self._row(caller, ref)
        with self._database.read() as c:
            tags = store.tags.of_versions(c, Scope(row.project), [row.id]).get(row.id, [])
        named = replace(row, name=shared_name(row.project, row.name, caller.scope.project))
        document = version_document(named, tags)
        if row.state == "ready" and row.described:
            document = dict(self._extended(named).definition) | document
        return document

    def versions(
        self, caller: Caller, name: str, *, after: str | None = None, limit: int = 50
    ) -> tuple[list[dict[str, object]], str | None]:
        """Return a page of a dataset's versions, newest first."""
        if name in datasets():
            return [brief_document(built_in_document(dataset)) for dataset in reversed(versions()[name])], None
        own = local_reference(name, caller.scope.project)
        with self._database.read() as c:
            rows = store.page(c, caller.scope, own, after, limit + 1)
            if not rows and not store.of_name(c, caller.scope, own):
                scope, shared = scope_of_name(c, caller, SharedKind.DATASETS, own)
                rows = store.page(c, scope, shared, after, limit + 1)
            owner = Scope(rows[0].project) if rows else caller.scope
            tags = store.tags.of_versions(c, owner, [row.id for row in rows])
        if not rows and after is None:
            raise self._unknown(caller, name)
        rows = [replace(row, name=shared_name(row.project, row.name, caller.scope.project)) for row in rows]
        return _brief(rows[:limit], tags), rows[limit - 1].id if len(rows) > limit else None

    def find(self, caller: Caller, ref: str, version: str | None = None) -> Dataset:
        """Return a dataset for a simulation: built-in, or registered. Raise NotPlayable.

        One without scenarios is for programs, whose tasks find its files.
        """
        if (built_in := find_built_in(ref, version)) is not None:
            if built_in.declared.template:
                raise NotPlayable(
                    f"{built_in.name} is a template without a world of its own: register a dataset that extends it, and"
                    " simulate that (docs/datasets.md)."
                )
            return built_in
        row = self.ready_version(caller, f"{ref}@{version}" if version else ref)
        return self._extended(replace(row, name=shared_name(row.project, row.name, caller.scope.project)))

    @staticmethod
    def frozen(dataset: Dataset) -> ResolvedDataset:
        """Return a dataset for provenance: enough to simulate it again after its row was deleted."""
        frozen = ResolvedDataset(name=dataset.name, version=dataset.version, digest=dataset.digest)
        if (base := dataset.declared.extends) is None:
            return frozen
        shipped = datasets()[base]
        own = {name: dataset.definition[name] for name in ("title", "description", "tasks")}
        said = own | {"scenarios": dataset.declared.listed}
        if maps := dataset.definition.get("maps"):
            said["maps"] = [{"name": entry["name"]} for entry in maps]
        if "plant" in dataset.definition:
            said["definition"] = {name: dataset.definition[name] for name in MEMBERS if name in dataset.definition}
        if environment := dataset.definition.get("openenv"):
            said["openenv"] = environment
        extends = DatasetVersion(name=shipped.name, version=shipped.version, digest=shipped.digest)
        return replace(frozen, extends=extends, said=said)

    @staticmethod
    def keep(c: Connection, scope: Scope, dataset: Dataset) -> None:
        """Lock a dataset against deletion until the transaction ends. Raise UnknownDataset if it was deleted."""
        registered = dataset.declared.extends is not None
        scope, name = scope_of_owner(dataset.name, scope)
        if registered and not store.lock_version(c, scope, name, int(dataset.version)):
            raise UnknownDataset(f"The dataset {dataset.name}@{dataset.version} was deleted a moment ago.")

    @staticmethod
    def _extended(row: DatasetVersionRow) -> Dataset:
        assert row.digest is not None
        if row.described is None:
            base, description = PROGRAM, dict(_ONLY_FILES)
        else:
            base = decode_document(row.described, VersionDescription).extends
            description = decode_document(row.described, dict[str, object])
        return extend(
            datasets()[base], name=row.name, version=str(row.version), digest=row.digest, description=description
        )

    def scenarios(
        self, caller: Caller, ref: str, *, after: int = 0, limit: int = 100
    ) -> tuple[list[dict[str, object]], int | None]:
        """Return a page of scenarios and the position of the next page."""
        if (built_in := find_built_in(ref)) is not None:
            rows = list(built_in.scenarios(after, limit + 1))
        else:
            row = self.ready_version(caller, ref)
            if not row.described:
                raise NotPlayable()
            described = decode_document(row.described, VersionDescription)
            rows = list(self._lines(row.manifest_key, described, after, limit + 1))
        return rows[:limit], after + limit if len(rows) > limit else None

    def _lines(
        self, manifest: str, described: VersionDescription, after: int, limit: int
    ) -> Iterator[dict[str, object]]:
        assert described.scenarios is not None, "its description names them"
        entry = manifest_object.find(self._objects, manifest, described.scenarios)
        assert entry is not None, "registration has checked that the scenarios exist"
        dropped = described.dropped_by_map
        for number, line in enumerate(non_blank(lines(self._sources.read(entry)))):
            if number >= after + limit:
                return
            if number >= after:
                scenario: dict[str, object] = {"index": number, **json.loads(line)}
                street = scenario.get("street")
                yield scenario | ({"dropped": dropped[street]} if isinstance(street, str) and street in dropped else {})

    def entry(self, caller: Caller, ref: str, path: str) -> ManifestEntry:
        """Return the manifest entry of a file. Raise UnknownFile."""
        row = self.ready_version(caller, ref)
        entry = manifest_object.find(self._objects, row.manifest_key, file_names.normalized(path))
        if entry is None:
            raise UnknownFile(f"There is no file {file_names.printable(path)} in {row.name}@{row.version}.")
        return entry

    def digest(self, caller: Caller, ref: str) -> str:
        """Return the digest of a version that is ready."""
        digest = self.ready_version(caller, ref).digest
        assert digest is not None, "it is ready"
        return digest

    def map_names(self, caller: Caller, ref: str) -> Collection[str]:
        """Return the names of the maps that a dataset has of its own."""
        if find_built_in(ref) is not None or not (described := self._row(caller, ref).described):
            return ()
        return decode_document(described, VersionDescription).dropped_by_map

    def size(self, caller: Caller, digest: str) -> int:
        """Return the bytes of the files of a version; 0 if every version with this digest was deleted."""
        with self._database.read() as c:
            return store.size_of(c, caller.scope, digest)

    def kept_entries(self, caller: Caller, dataset: ResolvedDataset) -> Iterator[ManifestEntry]:
        """Yield the manifest entries of the dataset that a caller's simulation plays, by path. Raise UnknownDataset."""
        with self._database.read() as c:
            row = store.content(c, caller.scope, dataset)
        if row is None:
            raise self._unknown(caller, dataset.digest)
        return manifest_object.read(self._objects, row.manifest_key)

    def entries(self, caller: Caller, ref: str) -> Iterator[ManifestEntry]:
        """Yield the manifest entries of a version, by path."""
        return manifest_object.read(self._objects, self.ready_version(caller, ref).manifest_key)

    def files(
        self, caller: Caller, ref: str, *, after: str | None = None, limit: int = 100
    ) -> tuple[list[dict[str, object]], str | None]:
        """Return a page of a version's files, by path."""
        start = after and file_names.normalized(after)
        entries = list(
            islice(manifest_object.read(self._objects, self.ready_version(caller, ref).manifest_key, start), limit + 1)
        )
        page = [
            {"path": entry.path, "size": entry.size, "digest": entry.digest, "source": location(entry)}
            for entry in entries[:limit]
        ]
        return page, entries[limit - 1].path if len(entries) > limit else None

    def file(self, caller: Caller, ref: str, path: str) -> Download:
        """Return a file of a version. Raise UnknownFile."""
        entry = self.entry(caller, ref, path)
        guessed_type, compression = mimetypes.guess_type(path)
        media_type = guessed_type if guessed_type is not None and compression is None else "application/octet-stream"
        etag = f'"{entry.digest.removeprefix("sha256:")[:32]}"'

        def read(start: int, stop: int) -> Iterator[bytes]:
            if (start, stop) == (0, entry.size):
                return verified(self._sources.read(entry), entry.digest, entry.path)
            if not entry.source.startswith("store:"):
                return self._sources.read(
                    entry, start, stop
                )  # its bucket compares the ETag and keeps its own checksums
            return self._checksums.read(
                lambda first, end: self._sources.read(entry, first, end),
                entry.digest,
                entry.size,
                start,
                stop,
                entry.path,
            )

        return Download(entry.size, media_type, etag, read)

    def diff(self, caller: Caller, name: str, old: str, new: str) -> Iterator[dict[str, object]]:
        """Yield the files added, removed and changed between two versions, by path, in constant memory."""
        before, now = (
            manifest_object.read(self._objects, self.ready_version(caller, f"{name}@{version}").manifest_key)
            for version in (old, new)
        )
        return differences(before, now)

    # -- lookup

    def _row(self, caller: Caller, ref: str) -> DatasetVersionRow:
        with self._database.read() as c:
            row = find_readable(c, caller, SharedKind.DATASETS, ref, store.find)
            if row is not None and row.same_as is not None:
                row = store.by_id(c, Scope(row.project), row.same_as)
        if row is None:
            raise self._unknown(caller, ref)
        return row

    def ready_version(self, caller: Caller, ref: str) -> DatasetVersionRow:
        if (built_in := find_built_in(ref)) is not None:
            raise UnknownDataset(
                f"{built_in.name} is a built-in dataset: it lists no files, and has no differences and tags."
                f" `GET /v1/datasets/{built_in.name}/scenarios` lists its scenarios; register a dataset of your own"
                " (`POST /v1/datasets`, which can extend this one) to have them."
            )
        row = self._row(caller, ref)
        if row.state != "ready":
            if row.state == "registering":
                began = moment(row.created_at)
                detail = f"{row.name} is being registered since {began}. Wait until it is ready."
                raise NotReady(detail, state=row.state)
            reason = (row.reason or "it cannot be registered").removesuffix(".")
            raise NotReady(f"The registration of {row.name} failed: {reason}. {NEXT_STEP}", state=row.state)
        return row

    def _unknown(self, caller: Caller, ref: str) -> UnknownDataset:
        if ref.startswith("sha256:"):
            return UnknownDataset(f"There is no dataset with the digest {ref[:80]}; register its files (again).")
        name, _, version = ref.partition("@")
        with self._database.read() as c:
            known = [*datasets(), *store.names(c, caller.scope)]
            present = find_readable(c, caller, SharedKind.DATASETS, name, store.find) if version else None
            if present is not None:
                tags = store.tags.of_name(c, Scope(present.project), present.name, MOST_LISTED + 1)
        if present is not None:
            return UnknownDataset(unknown_version("dataset", name, version, tags))
        near = near_names(name, known)
        hint = suggestion(near, f"There are: {name_list(sorted(known))}.")
        return UnknownDataset(f"There is no dataset {name[:100]!r}. {hint}", nearest=near)

    # -- changes

    def tag(self, caller: Caller, name: str, tag: str, version: str) -> dict[str, object]:
        """Let a tag refer to a version."""
        check_tag(tag)
        row = self.ready_version(caller, f"{name}@{version}")

        caller.require_change(row.made_by)

        def write(c: Connection) -> None:
            if not store.lock_ready(c, caller.scope, row.id):
                raise self._unknown(caller, name)
            _check_holder(c, caller, row.name, tag)
            store.tags.put(c, caller.scope, row.name, tag, row.id)

        self._database.write(write)
        return self.get(caller, row.id)

    def untag(self, caller: Caller, name: str, tag: str) -> None:
        """Delete a tag. Raise NotFound."""

        def write(c: Connection) -> bool:
            _check_holder(c, caller, name, tag)
            return store.tags.drop(c, caller.scope, name, tag)

        if not self._database.write(write):
            raise NotFound(f"The dataset {name[:100]!r} has no tag {tag[:100]!r}.")

    def delete(self, caller: Caller, ref: str) -> None:
        """Delete a version, or all of a name, or put them into the bin.

        Raise InUse if a simulation or a comparison that has not ended needs one.
        """
        if find_built_in(ref.partition("@")[0]) is not None:
            raise Invalid("A built-in dataset cannot be deleted.")
        ref = local_reference(ref, caller.scope.project)
        bare = "@" not in ref and not ref.startswith("sha256:") and not _ID.fullmatch(ref)

        def remove(c: Connection, id: str) -> DatasetVersionRow | None:
            if retention.find(c, caller.scope).bin:
                return store.into_bin(c, caller.scope, id, BinAct(self._database.now(c), caller.name))
            return store.bury(c, caller.scope, id, self._database.now(c))

        def write(c: Connection) -> list[DatasetVersionRow]:
            version = store.find(c, caller.scope, ref)
            ids = store.of_name(c, caller.scope, ref) if bare else [version.id] if version is not None else []
            deleted = []
            for id in ids:
                checked_version(c, caller, SharedKind.DATASETS, store.by_id(c, caller.scope, id))
                row = remove(c, id)
                if row is not None:
                    caller.require_change(row.made_by)
                deleted += [row] if row is not None else []
                # After the row is locked: a submission locks it too, so that one of the two sees the other.
                if row is not None and row.digest and (user := store.user_of(c, caller.scope, row.name, row.digest)):
                    raise InUse(f"Simulation {user} still needs {row.name}@{row.version}.", simulation=user)
                if (
                    row is not None
                    and row.digest
                    and (user := comparisons.needing_dataset(c, caller.scope, row.digest))
                ):
                    raise InUse(f"Comparison {user} still needs {row.name}@{row.version}.", comparison=user)
            return deleted

        if not (deleted := self._database.write(write)):
            with self._database.read() as c:
                shared = find_readable(c, caller, SharedKind.DATASETS, ref, store.find)
            if shared is not None:
                raise NotPermitted(f"{ref[:100]!r} belongs to {shared.project}, which shares it to be read.")
            raise self._unknown(caller, ref)
        for row in deleted:
            if row.digest is None:  # its registration has not ended; the job notices that it lost its claim
                self.release_uploads(row)

    def release_uploads(self, row: DatasetVersionRow) -> None:
        """End the protection of the uploads of a version's source."""
        with suppress(Corrupt):  # a source that cannot be read protects nothing by it; its uploads expire
            for upload in stored_source(row.source).upload_ids():
                self._uploads.let_go(work_of(row.project), upload)

    def in_use(self) -> list[ResolvedDataset]:
        """Return the datasets of simulations that have not ended, from their provenance."""
        with self._database.read(in_parts=True) as c:
            return store.in_use(c)


def _check_holder(c: Connection, caller: Caller, name: str, tag: str) -> None:
    """Raise NotPermitted for a tag on a version that is not the caller's, unless he may change everybody's."""
    if (row := store.find(c, caller.scope, f"{name}@{tag}")) is not None:
        caller.require_change(row.made_by)
        checked_version(c, caller, SharedKind.DATASETS, row)


def check_name(name: str) -> None:
    """Raise Invalid for a name that no registered dataset may have."""
    if name in datasets():
        raise Invalid(f"{name} is a built-in dataset; choose another name.")
    if not _NAME.fullmatch(name) or _ID.fullmatch(name):
        raise Invalid("A name has up to 100 letters, digits, dots, dashes and underscores, and is not an id.")


def _source_text(source: SourceKind) -> str:
    """Return the stored text of a source: equal sources have equal text."""
    return json.dumps(msgspec.to_builtins(source), sort_keys=True)


def find_built_in(ref: str, version: str | None = None) -> Dataset | None:
    """Return a built-in dataset, or None. Raise UnknownDataset if it has no such version."""
    return catalogue.find_dataset(ref, version) if ref.partition("@")[0] in datasets() else None


def _brief(rows: Sequence[DatasetVersionRow], tags: Mapping[str, Sequence[str]]) -> list[dict[str, object]]:
    """Return the items of a list; rows that cannot be read are left out."""
    return readable(rows, lambda row: brief_document(version_document(row, tags.get(row.id, []))), "dataset version")
