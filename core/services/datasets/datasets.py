"""Registered datasets: asked for, looked at, compared, tagged, deleted. `dataset_registration` makes them."""

import difflib
import json
import mimetypes
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from core.domain.downloads import Download
from core.domain.ids import new_id
from core.notifications.notifier import Notifier
from core.services.datasets import catalogue, dataset_sources, descriptions
from core.services.datasets.file_sources import Sources
from core.services.uploads.checksum_stream import verified
from core.services.uploads.uploads import Uploads
from core.store import datasets as store
from core.store.database import Connection, Database
from datasets.catalogue import Dataset, datasets
from datasets.objectstore.base import ObjectStore
from datasets.versions import file_names, manifest_object
from datasets.versions.manifest import ManifestEntry, lines
from datasets.versions.scenarios import extend, non_blank
from errors import InUse, Invalid, NotFound, NotPlayable, NotReady, UnknownDataset, UnknownFile

PROJECT = "default"
#: What an id looks like; no dataset may be called so.
_ID = re.compile(r"[0-9a-hjkmnp-tv-z]{26}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: Seconds for which what no version needs any more is kept: a job that lost its claim may still be writing.
GRACE = 300.0
#: Tags that a version may have when it is registered.
MOST_TAGS = 20


class Datasets:
    """What a person does with datasets, the built-in ones included."""

    def __init__(
        self, database: Database, objects: ObjectStore, notifier: Notifier, uploads: Uploads, sources: Sources
    ) -> None:
        self._database = database
        self._objects = objects
        self._notifier = notifier
        self._uploads = uploads
        self._sources = sources

    # -- ask for one

    def register(self, name: str, source: Mapping[str, Any], tags: Sequence[str] = ()) -> dict[str, Any]:
        """Write down what is to be registered, and ring for it; what can be refused at once is."""
        if name in datasets():
            raise Invalid(f"{name} is a built-in dataset; take another name.")
        if not _NAME.fullmatch(name) or _ID.fullmatch(name):
            raise Invalid("A dataset's name has up to 100 letters, digits, dots, dashes and underscores, and is no id.")
        if len(tags) > MOST_TAGS:
            raise Invalid(f"A version has at most {MOST_TAGS} tags when it is registered.")
        for tag in tags:
            _check_tag(tag)
        normal = dataset_sources.normal(source, self._uploads, self._sources)
        moment = datetime.now(UTC)
        row = {
            "id": new_id(moment),
            "project": PROJECT,
            "name": name,
            "source": json.dumps(normal, sort_keys=True),
            "tags": json.dumps(sorted(set(tags))),
        }

        def write(c: Connection) -> Any:
            now = self._database.now(c)
            dataset_sources.hold(c, dataset_sources.uploads_of(normal), now)
            return store.add(c, row | {"created_at": now})

        added = self._database.write(write)
        self._notifier.enqueue("register", row["id"])
        return descriptions.view(added, [])

    # -- look

    def page(self, *, after: str | None = None, limit: int = 50) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of datasets by name, the built-in ones first, each at its latest version."""
        built_in = [name for name in sorted(datasets()) if after is None or f"~{name}" > after]
        if after is not None and not after.startswith("~"):
            built_in = []
        shown = [descriptions.brief(datasets()[name]) for name in built_in[: limit + 1]]
        behind = None if after is None or after.startswith("~") else after
        with self._database.read() as c:
            rows = store.latest(c, PROJECT, behind, limit + 1 - len(shown)) if len(shown) <= limit else []
            tags = store.tags_of(c, [row.id for row in rows])
        shown += [descriptions.short(descriptions.view(row, tags.get(row.id, []))) for row in rows]
        if len(shown) <= limit:
            return shown, None
        last = shown[limit - 1]
        return shown[:limit], f"~{last['name']}" if last["registered"] is False else last["name"]

    def get(self, ref: str) -> dict[str, Any]:
        """Describe a dataset's version, built-in or registered, on its way or there."""
        if (built_in := _built_in(ref)) is not None:
            return descriptions.full(built_in)
        row = self._row(ref)
        with self._database.read() as c:
            tags = store.tags_of(c, [row.id]).get(row.id, [])
        view = descriptions.view(row, tags)
        if row.state == "ready" and row.described:
            view = dict(self._face(row).definition) | view
        return view

    def versions(
        self, name: str, *, after: str | None = None, limit: int = 50
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of a name's versions, newest first."""
        if name in datasets():
            return [descriptions.brief(datasets()[name])], None
        with self._database.read() as c:
            rows = store.page(c, PROJECT, name, after, limit + 1)
            tags = store.tags_of(c, [row.id for row in rows])
        if not rows and after is None:
            raise self._unknown(name)
        found = [descriptions.short(descriptions.view(row, tags.get(row.id, []))) for row in rows[:limit]]
        return found, found[-1]["id"] if len(rows) > limit else None

    def find(self, ref: str, version: str | None = None) -> Dataset:
        """Return what can be simulated: a built-in dataset, or a registered one that extends one."""
        if (built_in := _built_in(ref, version)) is not None:
            return built_in
        row = self._ready(f"{ref}@{version}" if version else ref)
        if not row.described:
            raise NotPlayable(f"The dataset {row.name} holds files, not scenarios; see docs/datasets.md.")
        return self._face(row)

    @staticmethod
    def frozen(dataset: Dataset) -> dict[str, Any]:
        """Return what a provenance says of a dataset: all it takes to play it again, also when its row is gone."""
        said = {"name": dataset.name, "version": dataset.version, "digest": dataset.digest}
        if (base := dataset.definition.get("extends")) is None:
            return said
        shipped = datasets()[base]
        own = {name: dataset.definition[name] for name in ("title", "description", "tasks")}
        return said | {
            "extends": {"name": shipped.name, "version": shipped.version, "digest": shipped.digest},
            "said": own | {"scenarios": dataset.definition["listed"]},
        }

    @staticmethod
    def keep(c: Connection, dataset: Dataset) -> None:
        """See to it that a dataset is still there when the transaction ends; who deletes it will see who needs it."""
        if "extends" in dataset.definition and not store.lock_version(c, PROJECT, dataset.name, int(dataset.version)):
            raise UnknownDataset(f"The dataset {dataset.name}@{dataset.version} was deleted a moment ago.")

    @staticmethod
    def _face(row: Any) -> Dataset:
        said = json.loads(row.described)
        built_in = datasets()[said["extends"]]
        return extend(built_in, name=row.name, version=str(row.version), digest=row.digest, description=said)

    def scenarios(self, ref: str, *, after: int = 0, limit: int = 100) -> tuple[list[dict[str, Any]], int | None]:
        """Return a page of scenarios and where the next begins."""
        if (built_in := _built_in(ref)) is not None:
            rows = list(built_in.scenarios(after, limit + 1))
        else:
            row = self._ready(ref)
            if not row.described:
                raise NotPlayable()
            rows = list(self._lines(row, after, limit + 1))
        return rows[:limit], after + limit if len(rows) > limit else None

    def _lines(self, row: Any, after: int, limit: int) -> Iterator[dict[str, Any]]:
        entry = manifest_object.find(self._objects, row.manifest, json.loads(row.described)["scenarios"])
        assert entry is not None, "a version is ready only if its scenarios are there"
        for number, line in enumerate(non_blank(lines(self._sources.read(entry)))):
            if number >= after + limit:
                return
            if number >= after:
                yield {"index": number, **json.loads(line)}

    def entry(self, ref: str, path: str) -> ManifestEntry:
        """Return one file of a version."""
        row = self._ready(ref)
        found = manifest_object.find(self._objects, row.manifest, file_names.normalized(path))
        if found is None:
            raise UnknownFile(f"There is no file {file_names.printable(path)} in {row.name}@{row.version}.")
        return found

    def entries(self, ref: str) -> Iterator[ManifestEntry]:
        """Yield the files of a version."""
        return manifest_object.read(self._objects, self._ready(ref).manifest)

    def files(self, ref: str, *, after: str | None = None, limit: int = 100) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of a version's files, by path."""
        row = self._ready(ref)
        found: list[dict[str, Any]] = []
        for entry in manifest_object.read(self._objects, row.manifest, after and file_names.normalized(after)):
            found.append(
                {"path": entry.path, "size": entry.size, "digest": entry.digest, "source": descriptions.place(entry)}
            )
            if len(found) > limit:
                break
        return found[:limit], found[limit - 1]["path"] if len(found) > limit else None

    def file(self, ref: str, path: str) -> Download:
        """Return one file of a version."""
        entry = self.entry(ref, path)
        kind, packed = mimetypes.guess_type(path)
        media_type = kind if kind is not None and packed is None else "application/octet-stream"
        etag = f'"{entry.digest.removeprefix("sha256:")[:32]}"'

        def read(start: int, stop: int) -> Iterator[bytes]:
            chunks = self._sources.read(entry, start, stop)
            return verified(chunks, entry.digest, entry.path) if (start, stop) == (0, entry.size) else chunks

        return Download(entry.size, media_type, etag, read)

    def diff(self, name: str, old: str, new: str) -> Iterator[dict[str, Any]]:
        """Yield what was added, removed and changed between two versions of a name, by path, in constant memory."""
        before, now = self._ready(f"{name}@{old}"), self._ready(f"{name}@{new}")
        return descriptions.differences(
            manifest_object.read(self._objects, before.manifest), manifest_object.read(self._objects, now.manifest)
        )

    # -- look up

    def _row(self, ref: str) -> Any:
        with self._database.read() as c:
            row = store.find(c, PROJECT, ref)
            if row is not None and row.state == "same":
                row = store.by_id(c, row.same_as)
        if row is None:
            raise self._unknown(ref)
        return row

    def _ready(self, ref: str) -> Any:
        row = self._row(ref)
        if row.state != "ready":
            why = (
                f"is being registered since {descriptions.moment(row.created_at)}"
                if row.state == "registering"
                else row.reason
            )
            raise NotReady(f"This version of {row.name} is not there: {why}.", state=row.state)
        return row

    def _unknown(self, ref: str) -> UnknownDataset:
        if ref.startswith("sha256:"):
            return UnknownDataset(f"No dataset here has the digest {ref[:80]}; register its files (again).")
        name, _, version = ref.partition("@")
        with self._database.read() as c:
            known = [*datasets(), *store.names(c, PROJECT)]
        if name in known and version:
            return UnknownDataset(f"The dataset {name} has no version or tag {version[:80]!r}.")
        near = difflib.get_close_matches(name, known, 3)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(sorted(known)[:20])}."
        return UnknownDataset(f"There is no dataset {name[:100]!r}. {hint}", nearest=near)

    # -- change

    def tag(self, name: str, tag: str, version: str) -> dict[str, Any]:
        """Have a tag mean a version of its name from now on."""
        _check_tag(tag)
        row = self._ready(f"{name}@{version}")

        def write(c: Connection) -> None:
            if not store.lock_ready(c, row.id):
                raise self._unknown(name)
            store.set_tag(c, PROJECT, row.name, tag, row.id)

        self._database.write(write)
        return self.get(row.id)

    def untag(self, name: str, tag: str) -> None:
        """Forget a tag."""
        if not self._database.write(lambda c: store.drop_tag(c, PROJECT, name, tag)):
            raise NotFound(f"The dataset {name[:100]!r} has no tag {tag[:100]!r}.")

    def delete(self, ref: str) -> None:
        """Delete a version, or with a bare name all of them, unless a simulation that has not ended needs one."""
        if _built_in(ref.partition("@")[0]) is not None:
            raise Invalid("A built-in dataset cannot be deleted.")
        bare = "@" not in ref and not ref.startswith("sha256:") and not _ID.fullmatch(ref)

        def write(c: Connection) -> list[Any]:
            found = store.find(c, PROJECT, ref)
            ids = store.of_name(c, PROJECT, ref) if bare else [found.id] if found is not None else []
            buried = []
            for id in ids:
                row = store.bury(c, id, self._database.now(c))
                buried += [row] if row is not None else []
                # Asked once the row is ours: who submits locks it too, so that one of the two sees the other.
                if row is not None and row.digest and (user := store.user_of(c, row.name, row.digest)):
                    raise InUse(f"Simulation {user} still needs {row.name}@{row.version}.", simulation=user)
            return buried

        if not (buried := self._database.write(write)):
            raise self._unknown(ref)
        for row in buried:
            if row.digest is None:  # whoever is at it finds out; it was not made, and is not going to be
                self.let_go(row)

    def let_go(self, row: Any) -> None:
        """Hold no longer what a version was to be made of."""
        for upload in dataset_sources.uploads_of(json.loads(row.source)):
            self._uploads.let_go(upload)

    # -- near

    def prefetch(self, ref: str) -> dict[str, Any]:
        """Ask for a version to be brought to this node, and say how far that is."""
        if _built_in(ref) is not None:
            return {"state": "ready", "files": 0, "bytes": 0}
        row = self._ready(ref)
        self._database.write(lambda c: store.ask_prefetch(c, row.id, self._database.now(c)))
        self._notifier.enqueue("prefetch", row.id)
        return self.fetched(row.id)

    def fetched(self, ref: str) -> dict[str, Any]:
        """Say how far a prefetch has come."""
        if _built_in(ref) is not None:
            return {"state": "ready", "files": 0, "bytes": 0}
        row = self._ready(ref)
        with self._database.read() as c:
            found = store.prefetch(c, row.id)
        if found is None:
            raise NotFound("Nobody asked for this version to be brought near; POST to this address.")
        return {"state": found.state, "total_files": row.files, "total_bytes": row.bytes, **json.loads(found.progress)}

    def waiting(self) -> tuple[list[str], list[str]]:
        """Return what is to be registered, and to be brought near, and nobody is at."""
        with self._database.read() as c:
            now = self._database.now(c)
            return store.registering(c, now), store.fetching(c, now)

    def in_use(self) -> list[dict[str, Any]]:
        """Return the datasets that simulations play which have not ended, as their provenance has them."""
        with self._database.read() as c:
            return store.in_use(c)

    # -- what is left over

    def collect_garbage(self, grace: float = GRACE) -> int:
        """Remove what ended versions alone needed; return how many objects. What ended a moment ago is let be."""
        with self._database.read() as c:
            over = store.purgeable(c, self._database.now(c) - grace)
        return sum(self.purge(id) for id in over)

    def remove_orphans(self, grace: float = GRACE) -> int:
        """Remove objects that no row refers to; return how many. It looks at every object there is."""
        keys = chain(self._objects.list("packs/"), self._objects.list("manifests/"))
        return sum(self._remove_stray(key, grace) for key in keys)

    def purge(self, id: str) -> int:
        """Remove what an ended version alone refers to: the object first, then the reference."""
        removed = 0
        with self._database.read() as c:
            held = store.objects_of(c, id)
        for object in held:
            with self._database.read() as c:
                needed = store.needed(c, object, but=id)
            if not needed:
                self._objects.delete(object)
                removed += 1
            self._database.write(lambda c, object=object: store.forget(c, id, object))  # type: ignore[misc]
        return removed

    def _remove_stray(self, key: str, grace: float) -> int:
        """Remove an object without a reference: of a job that lost its claim between one and the other."""
        maker = key.split("/")[1]
        with self._database.read() as c:
            row = store.by_id(c, maker)
            young = row is not None and row.ended_at is not None and row.ended_at > self._database.now(c) - grace
            if young or store.at_work(c, maker) or store.needed(c, key):
                return 0
        self._objects.delete(key)
        return 1


def new_pack(id: str) -> str:
    """Name a pack that a version's registration writes."""
    return f"packs/{id}/{secrets.token_hex(8)}"


def _check_tag(tag: str) -> None:
    if not _NAME.fullmatch(tag) or tag.isdecimal() or tag == "latest":
        raise Invalid(f"{tag[:80]!r} is no tag: a name that is neither a number nor `latest`, which tells itself.")


def _built_in(ref: str, version: str | None = None) -> Dataset | None:
    """Return a built-in dataset; None for a name that is not theirs. Raise UnknownDataset for a version that is not."""
    return catalogue.find_dataset(ref, version) if ref.partition("@")[0] in datasets() else None
