"""Registered datasets in SQL: versions, tags, prefetches, and the objects that each version refers to.

A version is registered under a claim, and every write of its job is conditional on the claim: a job that was wrongly
considered dead can neither finish the version nor add references to it.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, case, delete, exists, func, insert, not_, or_, select, update

from common.errors import Conflict, UnreadableRow
from core.domain.access.references import split_reference
from core.domain.access.scopes import ReadScope, Scope
from core.domain.access.shared_kinds import SharedKind
from core.domain.scheduling.states import UNENDED
from core.domain.submissions.provenance import ResolvedDataset, dataset_of
from core.domain.submissions.stored_documents import decode_document
from core.store import bin, quotas, shares
from core.store.bin import BinAct, BinRow
from core.store.claims import Claims, HeldClaim
from core.store.owned import within
from core.store.recording import note
from core.store.rows import StoredRow, columns_of, read_row, read_rows
from core.store.tables import bin_items, dataset_tags, simulations
from core.store.tables import dataset_objects as objects
from core.store.tables import dataset_prefetches as prefetches
from core.store.tables import dataset_versions as versions
from core.store.tags import Tags

tags = Tags(dataset_tags)

#: Claims on versions that are registered, and on requested prefetches.
CLAIMS = Claims(table=versions, needed="state='registering'", ready="", counted=True)
PREFETCHES = Claims(table=prefetches, needed="state='fetching'", ready="")
#: States of the versions that lists show; a version in the state `same` is shown as the version that it equals.
_LISTED = ("registering", "ready", "failed")
_LATEST_FIRST = (case((versions.c.state == "ready", 0), else_=1), versions.c.version.desc(), versions.c.id.desc())


class DatasetVersionRow(StoredRow, frozen=True, gc=False):
    """A registered version. ``version``, ``manifest`` and ``digest``: None until it is ready. ``bytes``: of its files.

    ``source``: as it was registered, normalised. ``tags``: those that it gets once it is ready. ``described``: a
    `VersionDescription`, if it has scenarios. ``same_as``: the version that has this content already.
    """

    id: str
    project: str
    name: str
    version: int | None
    state: str
    source: str
    tags: str
    manifest: str | None
    digest: str | None
    files: int
    bytes: int
    stored_bytes: int
    described: str | None
    same_as: str | None
    progress: str | None
    reason: str | None
    attempts: int
    created_at: float
    ended_at: float | None
    made_by: str

    @property
    def manifest_key(self) -> str:
        """Key of its manifest; only of a version that is ready."""
        assert self.manifest is not None, "it is not ready"
        return self.manifest

    @property
    def tag_names(self) -> list[str]:
        """The tags that it gets."""
        return decode_document(self.tags, list[str])

    @property
    def source_members(self) -> set[str]:
        """Names of the members of its source, of which one is its kind."""
        return set(decode_document(self.source, dict[str, object]))


class PrefetchRow(StoredRow, frozen=True, gc=False):
    """A requested prefetch, with its progress as JSON."""

    state: str
    progress: str


class _BinnedVersion(msgspec.Struct):
    """The document of a version in the bin: when its registration ended, its tags, and how many objects it has."""

    ended_at: float | None
    tags: list[str]
    objects: int


_COLUMNS = columns_of(versions, DatasetVersionRow)
_IN_BIN = exists().where(bin_items.c.id == versions.c.id)
_SELECT = select(*_COLUMNS)


def add(c: Connection, values: Mapping[str, object]) -> DatasetVersionRow:
    """Insert a version in the state `registering`, and return it."""
    adding = insert(versions).values(**values, state="registering")
    [added] = read_rows(c.execute(adding.returning(*_COLUMNS)), DatasetVersionRow)
    note(c, f"datasets/{added.id}")
    return added


def add_ready(c: Connection, values: Mapping[str, object]) -> None:
    """Insert a version in the state `ready`, whose files the machine that simulates has already."""
    c.execute(insert(versions).values(**values, state="ready"))


# -- queries


def by_id(c: Connection, scope: Scope | ReadScope, id: str) -> DatasetVersionRow | None:
    """Return a version in any state but `deleted`."""
    alive = _SELECT.where(within(versions, scope), versions.c.id == id, versions.c.state != "deleted")
    return read_row(c.execute(alive).first(), DatasetVersionRow)


def of_source(c: Connection, scope: Scope, name: str, source: str) -> DatasetVersionRow | None:
    """Return the newest version of a name with this source, in any state but `deleted`."""
    alive = (versions.c.name == name, versions.c.source == source, versions.c.state != "deleted")
    query = _SELECT.where(within(versions, scope), *alive).order_by(versions.c.id.desc())
    return read_row(c.execute(query.limit(1)).first(), DatasetVersionRow)


def find(c: Connection, scope: Scope | ReadScope, ref: str) -> DatasetVersionRow | None:
    """Return the version with this id, digest, name (its latest), ``name@version`` or ``name@tag``.

    The latest version of a name is its newest ready one; of a name without a ready version, its newest registration.
    """
    query = _SELECT.where(within(versions, scope))
    name, at, selector = ref.partition("@")
    if not at and (row := by_id(c, scope, ref)) is not None:
        return row
    if not ref.startswith("sha256:") and selector in {"", "latest"}:
        listed = versions.c.state.in_(_LISTED)
        latest_first = query.where(versions.c.name == name, listed).order_by(*_LATEST_FIRST)
        return read_row(c.execute(latest_first.limit(1)).first(), DatasetVersionRow)
    query = query.where(versions.c.state == "ready")
    if ref.startswith("sha256:"):
        query = query.where(versions.c.digest == ref)
    else:
        query = query.where(versions.c.name == name)
        if selector.isdecimal() and len(selector) < 10:
            query = query.where(versions.c.version == int(selector))
        else:
            query = query.where(versions.c.id.in_(tags.tagged(scope, name, selector)))
    newest_first = query.order_by(versions.c.version.desc(), versions.c.id.desc())
    return read_row(c.execute(newest_first.limit(1)).first(), DatasetVersionRow)


def content(c: Connection, scope: Scope, dataset: ResolvedDataset) -> DatasetVersionRow | None:
    """Return the version that a simulation plays: of its project, or of the one that its name begins with.

    Its files are there: it is ready; or its owner has deleted it, and it is kept for simulations of other projects.
    """
    there: ColumnElement[bool] = versions.c.state == "ready"
    owner, _ = split_reference(dataset.name)
    if owner:
        scope = Scope(owner)
        there = or_(there, exists().where(objects.c.version_id == versions.c.id))
    same = (versions.c.digest == dataset.digest, versions.c.manifest.is_not(None))
    query = _SELECT.where(within(versions, scope), *same, there).order_by(*_LATEST_FIRST)
    return read_row(c.execute(query.limit(1)).first(), DatasetVersionRow)


def names(c: Connection, scope: Scope) -> list[str]:
    """Return the names that have versions, for suggestions when a name is misspelt."""
    query = select(versions.c.name).where(within(versions, scope), versions.c.state.in_(_LISTED))
    return list(c.scalars(query.distinct().order_by(versions.c.name).limit(1000)))


def latest(c: Connection, scope: Scope, after: str | None, limit: int) -> list[DatasetVersionRow]:
    """Return the latest version of each name, as ``find`` does, by name."""
    other = versions.alias()
    order = (case((other.c.state == "ready", 0), else_=1), other.c.version.desc(), other.c.id.desc())
    newest = (
        select(other.c.id)
        .where(other.c.project == versions.c.project, other.c.name == versions.c.name, other.c.state.in_(_LISTED))
        .order_by(*order)
        .limit(1)
        .scalar_subquery()
    )
    query = _SELECT.where(within(versions, scope), versions.c.id == newest)
    if after is not None:
        query = query.where(versions.c.name > after)
    return read_rows(c.execute(query.order_by(versions.c.name).limit(limit)), DatasetVersionRow)


def latest_of_others(c: Connection, scope: ReadScope, after: tuple[str, str], limit: int) -> list[DatasetVersionRow]:
    """Return the latest ready version of each name that other projects share with a scope's reader, by owner and name.

    ``after``: the owner and the name of the last one before.
    """
    reader, ready, (owner, name) = scope.reader, versions.c.state == "ready", after
    place = func.row_number().over(
        partition_by=(versions.c.project, versions.c.name), order_by=(versions.c.version.desc(), versions.c.id.desc())
    )
    follows = or_(versions.c.project > owner, and_(versions.c.project == owner, versions.c.name > name))
    among = select(versions.c.id, place.label("place")).where(within(versions, scope), versions.c.project != reader)
    placed = among.where(ready, follows).subquery("placed")
    query = _SELECT.join(placed, placed.c.id == versions.c.id).where(within(versions, scope), placed.c.place == 1)
    return read_rows(c.execute(query.order_by(versions.c.project, versions.c.name).limit(limit)), DatasetVersionRow)


def page(c: Connection, scope: Scope | ReadScope, name: str, after: str | None, limit: int) -> list[DatasetVersionRow]:
    """Return versions of a name, newest first; also those in the states `registering` and `failed`."""
    query = _SELECT.where(within(versions, scope), versions.c.name == name, versions.c.state.in_(_LISTED))
    if after is not None:
        query = query.where(versions.c.id < after)
    return read_rows(c.execute(query.order_by(versions.c.id.desc()).limit(limit)), DatasetVersionRow)


def ready(c: Connection, scope: Scope, name: str | None = None) -> list[DatasetVersionRow]:
    """Return ready versions of a name, or of the whole project, newest first."""
    query = _SELECT.where(within(versions, scope), versions.c.state == "ready")
    if name is not None:
        query = query.where(versions.c.name == name)
    return read_rows(c.execute(query.order_by(versions.c.id.desc())), DatasetVersionRow)


def before(c: Connection, row: DatasetVersionRow) -> DatasetVersionRow | None:
    """Return the newest ready version with the same source."""
    same = (versions.c.name == row.name, versions.c.state == "ready", versions.c.source == row.source)
    query = _SELECT.where(within(versions, Scope(row.project)), *same)
    return read_row(c.execute(query.order_by(versions.c.version.desc()).limit(1)).first(), DatasetVersionRow)


# -- register


def refer(c: Connection, claim: HeldClaim, object: str) -> bool:
    """Insert a reference to an object that is about to be written; return False if the claim is lost."""
    if not CLAIMS.lock(c, claim):
        return False
    c.execute(insert(objects).values(version_id=claim.id, object=object))
    return True


def borrow(c: Connection, claim: HeldClaim, lender: str, keys: Sequence[str]) -> bool:
    """Insert references to objects of another version; False if the claim is lost or the other is no longer ready."""
    lending = select(versions.c.id).where(versions.c.id == lender, versions.c.state == "ready")
    if not CLAIMS.lock(c, claim) or c.execute(lending.with_for_update(read=True)).first() is None:
        return False
    referenced = set(c.scalars(select(objects.c.object).where(objects.c.version_id == claim.id)))
    for object in set(keys) - referenced:
        c.execute(insert(objects).values(version_id=claim.id, object=object))
    return True


def finish(
    c: Connection, claim: HeldClaim, values: Mapping[str, object], now: float, *, located: Collection[str] = ()
) -> DatasetVersionRow | None:
    """Make a version ready with the next number, or the same as an existing one; None if the claim is lost.

    ``located``: kinds of source whose files stay in the user's bucket, if a file was located there. An existing version
    of the same content from such a source then gets the new locations, because its objects may have been moved, or
    rewritten with other ETags.
    Raise QuotaExceeded if its project has no room for its content.
    """
    if not CLAIMS.lock(c, claim):
        return None
    id = claim.id
    [own] = read_rows(c.execute(_SELECT.where(versions.c.id == id)), DatasetVersionRow)
    # Locks all versions of the name in one order, so that two that finish at once are numbered one after the other.
    of_name = and_(within(versions, Scope(own.project)), versions.c.name == own.name)
    locked = _SELECT.where(of_name).order_by(versions.c.id).with_for_update()
    rows = read_rows(c.execute(locked), DatasetVersionRow)
    same = next((row for row in rows if row.state == "ready" and row.digest == values["digest"]), None)
    changes: dict[str, object] = {"claim": None, "claim_until": 0.0, "ended_at": now, "progress": None}
    if same is not None:
        changes |= {"state": "same", "same_as": same.id}
        if same.source_members & set(located):
            location = {"manifest": values["manifest"], "source": own.source}
            c.execute(update(versions).where(versions.c.id == same.id).values(**location))
            _swap_objects(c, id, same.id)
    else:
        newest = max((row.version for row in rows if row.version is not None), default=0)
        changes |= {"state": "ready", "version": newest + 1, **values}
    c.execute(update(versions).where(versions.c.id == id).values(**changes))
    effective = same.id if same is not None else id
    for tag in own.tag_names:
        tags.put(c, Scope(own.project), own.name, tag, effective)
    [finished] = read_rows(c.execute(_SELECT.where(versions.c.id == effective)), DatasetVersionRow)
    if same is None:
        _charge(c, finished, finished.stored_bytes)
    return finished


def _charge(c: Connection, row: DatasetVersionRow, stored: int) -> None:
    others = select(versions.c.made_by).where(
        versions.c.project == row.project,
        versions.c.digest == row.digest,
        versions.c.id != row.id,
        or_(versions.c.state == "ready", _IN_BIN),
        versions.c.stored_bytes > 0,
    )
    quotas.charge_content(c, row.project, row.made_by, stored, others)


def _swap_objects(c: Connection, first: str, second: str) -> None:
    """Exchange the references of two versions."""
    references = {id: objects_of(c, id) for id in (first, second)}
    c.execute(delete(objects).where(objects.c.version_id.in_(references)))
    for id, keys in ((first, references[second]), (second, references[first])):
        if keys:
            c.execute(insert(objects), [{"version_id": id, "object": key} for key in keys])


# -- deletion


def lock_ready(c: Connection, scope: Scope, id: str) -> bool:
    """Return whether a version is ready, and lock it until the transaction ends."""
    query = select(versions.c.id).where(within(versions, scope), versions.c.id == id, versions.c.state == "ready")
    return c.execute(query.with_for_update(read=True)).first() is not None


def lock_version(c: Connection, scope: Scope, name: str, version: int) -> bool:
    """Return whether a version of a name is ready, and lock it until the transaction ends."""
    query = select(versions.c.id).where(within(versions, scope), versions.c.name == name, versions.c.version == version)
    return c.execute(query.where(versions.c.state == "ready").with_for_update(read=True)).first() is not None


def lock(c: Connection, scope: Scope, id: str) -> None:
    """Lock a version until the transaction ends, so that a submission that uses it is seen, or sees its end."""
    c.execute(select(versions.c.id).where(within(versions, scope), versions.c.id == id).with_for_update())


def bury(c: Connection, scope: Scope, id: str, now: float) -> DatasetVersionRow | None:
    """Mark a version as deleted, with its tags and prefetch: no query finds it, and no new reference is made to it."""
    row = _bury(c, scope, id, now)
    if row is not None and row.stored_bytes:
        _charge(c, row, -row.stored_bytes)
    return row


def into_bin(c: Connection, scope: Scope, id: str, act: BinAct) -> DatasetVersionRow | None:
    """Put a version into the bin, where it is as if it were deleted and stays charged; delete one that is not ready."""
    before = by_id(c, scope, id)
    if before is None or before.state != "ready":
        return bury(c, scope, id, act.at)
    named = tags.of_versions(c, scope, [id]).get(id, [])
    if (row := _bury(c, scope, id, act.at)) is None:
        return None
    kept = _BinnedVersion(ended_at=before.ended_at, tags=named, objects=len(objects_of(c, id)))
    item = {"id": id, "project": row.project, "kind": "datasets", "name": row.name, "version": row.version}
    content = {"bytes": row.stored_bytes, "made_by": row.made_by, "document": msgspec.json.encode(kept).decode()}
    bin.add(c, item | content | act.columns())
    return row


def restore(c: Connection, item: BinRow) -> str | None:
    """Make a version that was in the bin ready again, with its tags; return the tag that another one has, if any.

    Raise Conflict if objects of it are gone: an earlier version of the platform collects what is deleted.
    """
    scope, kept = Scope(item.project), decode_document(item.document or "", _BinnedVersion)
    for tag in kept.tags:
        if c.execute(tags.tagged(scope, item.name, tag)).first() is not None:
            return tag
    if len(objects_of(c, item.id)) != kept.objects:
        raise Conflict("Its objects are being removed already, by an earlier version of the platform.")
    buried = and_(within(versions, scope), versions.c.id == item.id, versions.c.state == "deleted")
    c.execute(update(versions).where(buried).values(state="ready", ended_at=kept.ended_at))
    for tag in kept.tags:
        tags.put(c, scope, item.name, tag, item.id)
    note(c, f"datasets/{item.id}")
    return None


def purge(c: Connection, item: BinRow, now: float) -> None:
    """Charge a version that was taken out of the bin no longer; its objects are collected some minutes from now."""
    ending = update(versions).where(versions.c.id == item.id, versions.c.state == "deleted").values(ended_at=now)
    row = read_row(c.execute(ending.returning(*_COLUMNS)).first(), DatasetVersionRow)
    if row is not None and row.stored_bytes:
        _charge(c, row, -row.stored_bytes)


def _bury(c: Connection, scope: Scope, id: str, now: float) -> DatasetVersionRow | None:
    alive = and_(within(versions, scope), versions.c.id == id, versions.c.state != "deleted")
    changes = {"state": "deleted", "ended_at": now, "claim": None, "claim_until": 0.0}
    burying = update(versions).where(alive).values(**changes).returning(*_COLUMNS)
    row = read_row(c.execute(burying).first(), DatasetVersionRow)
    tags.drop_all(c, scope, id)
    c.execute(delete(prefetches).where(prefetches.c.version_id == id))
    if row is None:
        return None
    left = of_name(c, Scope(row.project), row.name)
    shares.forget(c, row.project, SharedKind.DATASETS, row.name, id, last=not left)
    return row


def user_of(c: Connection, scope: Scope, name: str, digest: str) -> str | None:
    """Return the id of a simulation on this version that has not ended, or None."""
    unended = and_(simulations.c.ended_at.is_(None), simulations.c.deleted_at.is_(None))
    # The column is empty in rows of processes from before it, which may run beside this one: their provenance decides.
    same = simulations.c.dataset_digest.in_([digest, ""])
    columns = simulations.c.id, simulations.c.dataset_digest, simulations.c.provenance
    query = select(*columns).where(within(simulations, scope), simulations.c.dataset == name, unended, same)
    for id, stored, provenance in c.execute(query):
        with suppress(UnreadableRow):  # it cannot run
            if stored or dataset_of(provenance).digest == digest:
                return str(id)
    return None


def size_of(c: Connection, scope: Scope, digest: str) -> int:
    """Return the bytes of a version's files; 0 if every version with this digest was deleted."""
    query = select(func.max(versions.c.bytes)).where(within(versions, scope), versions.c.digest == digest)
    return int(c.scalar(query) or 0)


def in_use(c: Connection) -> list[ResolvedDataset]:
    """Return the datasets of simulations that have not ended, from their provenance, each once."""
    query = select(simulations.c.provenance).where(simulations.c.state.in_(sorted(UNENDED)))
    used: dict[tuple[str, str], ResolvedDataset] = {}
    for provenance in c.scalars(query.execution_options(yield_per=500)):
        with suppress(UnreadableRow):  # it cannot run
            dataset = dataset_of(provenance)
            used[dataset.digest, dataset.base.digest] = dataset
    return list(used.values())


def of_name(c: Connection, scope: Scope, name: str) -> list[str]:
    """Return the ids of a name's versions that are not deleted."""
    query = select(versions.c.id).where(within(versions, scope), versions.c.name == name, versions.c.state != "deleted")
    return list(c.scalars(query.order_by(versions.c.id)))


def purgeable(c: Connection, before: float) -> list[str]:
    """Return deleted, failed and duplicate versions that ended before ``before`` and still refer to objects.

    A deleted one stays while it is in the bin, and as long as a simulation that has not ended plays it: it may have
    been shared with that.
    """
    over = and_(versions.c.state.in_(["deleted", "failed", "same"]), versions.c.ended_at <= before)
    referring = exists().where(objects.c.version_id == versions.c.id)
    unended = and_(simulations.c.ended_at.is_(None), simulations.c.deleted_at.is_(None))
    played = exists().where(unended, simulations.c.dataset_digest == versions.c.digest)
    kept = and_(versions.c.state == "deleted", or_(played, _IN_BIN))
    query = select(versions.c.id).where(over, referring, not_(kept))
    return list(c.scalars(query.order_by(versions.c.id).limit(100)))


def objects_of(c: Connection, id: str) -> list[str]:
    """Return the objects that a version refers to."""
    return list(c.scalars(select(objects.c.object).where(objects.c.version_id == id).order_by(objects.c.object)))


def needed(c: Connection, object: str, but: str | None = None) -> bool:
    """Return whether any version other than ``but`` refers to an object."""
    query = select(objects.c.version_id).where(objects.c.object == object)
    if but is not None:
        query = query.where(objects.c.version_id != but)
    return c.execute(query.limit(1)).first() is not None


def forget(c: Connection, id: str, object: str) -> None:
    """Delete a reference, after its object was deleted or another version refers to it."""
    c.execute(delete(objects).where(objects.c.version_id == id, objects.c.object == object))


def at_work(c: Connection, id: str) -> bool:
    """Return whether a version is in the state `registering`."""
    query = select(versions.c.id).where(versions.c.id == id, versions.c.state == "registering")
    return c.execute(query).first() is not None


# -- prefetches


def ask_prefetch(c: Connection, id: str, now: float) -> None:
    """Request a prefetch of a version; a running one continues."""
    fresh = {"state": "fetching", "progress": "{}", "claim": None, "claim_until": 0.0, "asked_at": now}
    where = prefetches.c.version_id == id
    if c.execute(select(prefetches.c.version_id).where(where)).first() is None:
        c.execute(insert(prefetches).values(version_id=id, **fresh))
    else:
        c.execute(update(prefetches).where(where, prefetches.c.state != "fetching").values(**fresh))


def prefetch(c: Connection, id: str) -> PrefetchRow | None:
    """Return a version's prefetch with its progress, or None."""
    query = select(*columns_of(prefetches, PrefetchRow)).where(prefetches.c.version_id == id)
    return read_row(c.execute(query).first(), PrefetchRow)


def at_prefetch(c: Connection, id: str) -> bool:
    """Return whether a version is being prefetched."""
    query = select(prefetches.c.version_id).where(prefetches.c.version_id == id, prefetches.c.state == "fetching")
    return c.execute(query).first() is not None


def tell_prefetch(c: Connection, id: str, state: str, progress: Mapping[str, object]) -> None:
    """Store state and progress of a prefetch."""
    values = {"state": state, "progress": json.dumps(progress)}
    c.execute(update(prefetches).where(prefetches.c.version_id == id).values(**values))
