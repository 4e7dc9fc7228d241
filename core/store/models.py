"""Models in SQL: immutable, named and versioned rows that refer to content by digest."""

from collections.abc import Mapping

import msgspec
from sqlalchemy import Connection, Select, bindparam, func, insert, or_, select, union_all

from core.domain.access.quotas import Charge
from core.domain.access.scopes import ReadScope, Scope
from core.domain.access.shared_kinds import SharedKind
from core.domain.submissions.stored_documents import decode_document
from core.store import bin, quotas, shares
from core.store.bin import BinAct, BinRow
from core.store.owned import OwnedQuery, within
from core.store.recording import note
from core.store.rows import StoredRow, columns_of, read_row, read_rows
from core.store.tables import bin_items, model_tags, models, simulations
from core.store.tags import Tags

tags = Tags(model_tags)


class ModelRow(StoredRow, frozen=True, gc=False):
    """A version of a model. ``size`` in bytes; ``dependencies`` and ``source`` are documents (records.Model)."""

    id: str
    project: str
    name: str
    version: int
    digest: str
    format: str
    size: int
    filename: str | None
    runtime: str | None
    created_at: float
    dependencies: str | None
    source: str | None
    made_by: str


class _BinnedModel(msgspec.Struct):
    """The document of a version in the bin: its row and its tags."""

    model: dict[str, object]
    tags: list[str]


_NEWEST_FIRST = models.c.version.desc(), models.c.id.desc()
_COLUMNS = columns_of(models, ModelRow)
_SELECT = select(*_COLUMNS)
_WITH_DIGEST = OwnedQuery(
    models,
    _SELECT.where(models.c.digest == bindparam("d")).order_by(models.c.name != bindparam("n"), *_NEWEST_FIRST).limit(1),
)


def add(c: Connection, values: Mapping[str, object]) -> ModelRow:
    """Insert the next version of a name, unless its newest version has the same content already.

    Content that its project has not yet is charged; raise QuotaExceeded if there is no room for it.
    """
    project, name = values["project"], values["name"]
    versions = _SELECT.where(models.c.project == project, models.c.name == name)
    newest = read_row(c.execute(versions.order_by(models.c.version.desc()).limit(1)).first(), ModelRow)
    if newest is not None and newest.digest == values["digest"] and newest.format == values["format"]:
        return newest
    binned = bin.newest_version(c, Scope(str(project)), str(name))
    version = max(newest.version if newest is not None else 0, binned) + 1
    adding = insert(models).values(**values, version=version).returning(*_COLUMNS)
    [added] = read_rows(c.execute(adding), ModelRow)
    note(c, f"models/{added.id}")
    others = _makers(Scope(added.project), added.digest, but=added.id)
    quotas.charge_content(c, added.project, added.made_by, added.size, others)
    return added


def room(c: Connection, scope: Scope, user: str, digest: str, size: int) -> None:
    """Raise QuotaExceeded if a project has no room at this moment for content that it has not yet."""
    if not set(c.scalars(_makers(scope, digest).limit(1))):
        quotas.room(c, scope.owner, user, Charge(stored_bytes=size))


def _makers(scope: Scope, digest: str, but: str = "") -> Select[str]:
    """Return the query of who has content of a project, also in the bin, in another row than ``but``."""
    rows = [
        select(table.c.made_by).where(within(table, scope), table.c.digest == digest, table.c.id != but)
        for table in (models, bin_items)
    ]
    return select(union_all(*rows).subquery("makers").c.made_by)


def find(c: Connection, scope: Scope | ReadScope, ref: str) -> ModelRow | None:
    """Return the model with this id, digest, name (its newest version), ``name@version`` or ``name@tag``.

    ``name@latest`` is the newest version. ``name@digest`` is a model with this digest: that of this name, if there is
    one.
    """
    name, at, selector = ref.rpartition("@")
    if selector.startswith("sha256:"):
        return read_row(_WITH_DIGEST.execute(c, scope, d=selector, n=name).first(), ModelRow)
    query = _SELECT.where(within(models, scope))
    if not at:
        query = query.where(or_(models.c.id == ref, models.c.name == ref))
    else:
        query = query.where(models.c.name == name)
        if selector.isdecimal() and len(selector) < 10:
            query = query.where(models.c.version == int(selector))
        elif selector != "latest":
            query = query.where(models.c.id.in_(tags.tagged(scope, name, selector)))
    return read_row(c.execute(query.order_by(*_NEWEST_FIRST).limit(1)).first(), ModelRow)


def page(
    c: Connection, scope: Scope, *, name: str | None, format: str | None, after: str | None, limit: int
) -> list[ModelRow]:
    """Return up to ``limit`` models, newest first, older than ``after``."""
    return _page(c, _SELECT.where(within(models, scope)), name=name, format=format, after=after, limit=limit)


def _page(
    c: Connection,
    query: Select[*tuple[object, ...]],
    *,
    name: str | None,
    format: str | None,
    after: str | None,
    limit: int,
) -> list[ModelRow]:
    if name is not None:
        query = query.where(models.c.name == name)
    if format is not None:
        query = query.where(models.c.format == format)
    if after is not None:
        query = query.where(models.c.id < after)
    return read_rows(c.execute(query.order_by(models.c.id.desc()).limit(limit)), ModelRow)


def page_of_others(
    c: Connection, scope: ReadScope, *, name: str | None, format: str | None, after: str | None, limit: int
) -> list[ModelRow]:
    """Return models that others share with the reader of a scope, as `page` does; of one owner, if it has one."""
    query = _SELECT.where(within(models, scope), models.c.project != scope.reader)
    return _page(c, query, name=name, format=format, after=after, limit=limit)


def names(c: Connection, scope: Scope) -> list[str]:
    """Return every name, for the nearest to a misspelt one."""
    return list(c.scalars(select(models.c.name).where(within(models, scope)).distinct().limit(1000)))


def busy(c: Connection, scope: Scope, digest: str) -> str | None:
    """Return a simulation that has not ended and uses this content, if there is one."""
    query = select(simulations.c.id).where(simulations.c.digest == digest, simulations.c.ended_at.is_(None))
    return c.scalar(query.where(within(simulations, scope), simulations.c.deleted_at.is_(None)).limit(1))


def hold(c: Connection, scope: Scope, digest: str) -> bool:
    """Return whether a model has this content, and lock its rows against deletion until the transaction ends."""
    query = select(models.c.id).where(within(models, scope), models.c.digest == digest)
    return c.execute(query.with_for_update(read=True)).first() is not None


def hold_version(c: Connection, scope: Scope, id: str) -> bool:
    """Return whether a row is there, and lock it against deletion until the transaction ends."""
    query = select(models.c.id).where(within(models, scope), models.c.id == id)
    return c.execute(query.with_for_update(read=True)).first() is not None


def lock(c: Connection, scope: Scope, id: str) -> None:
    """Lock a row until the transaction ends, so that a submission that uses it is seen afterwards, or sees its end."""
    c.execute(select(models.c.id).where(within(models, scope), models.c.id == id).with_for_update())


def delete(c: Connection, scope: Scope, id: str) -> bool:
    """Delete a row and its tags; return whether its content is no longer referenced by any model or simulation."""
    row = _remove(c, scope, id)
    return row is not None and _forget_content(c, Scope(row.project), id, row.made_by, (row.digest, row.size))


def into_bin(c: Connection, scope: Scope, id: str, act: BinAct) -> bool:
    """Put a version and its tags into the bin, where its content stays charged; False if it is not there."""
    named = tags.of_versions(c, scope, [id]).get(id, [])
    used_at = c.scalar(select(models.c.used_at).where(within(models, scope), models.c.id == id))
    if (row := _remove(c, scope, id)) is None:
        return False
    content = {"name": row.name, "version": row.version, "digest": row.digest, "bytes": row.size}
    kept = _BinnedModel(model=msgspec.to_builtins(row) | {"used_at": used_at}, tags=named)
    item = {"id": id, "project": row.project, "kind": "models", "made_by": row.made_by}
    item["document"] = msgspec.json.encode(kept).decode()
    bin.add(c, item | content | act.columns())
    return True


def restore(c: Connection, item: BinRow) -> str | None:
    """Insert a version that was in the bin, with its tags; return the tag that another one has now, if there is one."""
    scope, kept = Scope(item.project), decode_document(item.document or "", _BinnedModel)
    for tag in kept.tags:
        if c.execute(tags.tagged(scope, item.name, tag)).first() is not None:
            return tag
    c.execute(insert(models).values(**kept.model))
    for tag in kept.tags:
        tags.put(c, scope, item.name, tag, item.id)
    note(c, f"models/{item.id}")
    return None


def purge(c: Connection, item: BinRow) -> bool:
    """End a version that was taken out of the bin; return as `delete` does."""
    return _forget_content(c, Scope(item.project), item.id, item.made_by, (item.digest or "", item.bytes))


def _remove(c: Connection, scope: Scope, id: str) -> ModelRow | None:
    deleting = models.delete().where(within(models, scope), models.c.id == id)
    row = read_row(c.execute(deleting.returning(*_COLUMNS)).first(), ModelRow)
    tags.drop_all(c, scope, id)
    if row is not None:
        left = select(models.c.id).where(models.c.project == row.project, models.c.name == row.name).limit(1)
        shares.forget(c, row.project, SharedKind.MODELS, row.name, id, last=c.scalar(left) is None)
    return row


def _forget_content(c: Connection, scope: Scope, id: str, made_by: str, content: tuple[str, int]) -> bool:
    """Charge content, a digest with its size, no longer for a row that is gone; return whether nothing refers to it."""
    digest, size = content
    quotas.charge_content(c, scope.owner, made_by, -size, _makers(scope, digest, but=id))
    return not needed(c, digest)


def size_of(c: Connection, digest: str) -> int:
    """Return the bytes of a model's file; 0 if every version with this digest was deleted."""
    return int(c.scalar(select(func.max(models.c.size)).where(models.c.digest == digest)) or 0)


def needed(c: Connection, digest: str) -> bool:
    """Return whether any model or simulation refers to this content, those in the bin included."""
    model = select(models.c.id).where(models.c.digest == digest)
    binned = select(bin_items.c.id).where(bin_items.c.digest == digest)
    kept = or_(simulations.c.deleted_at.is_(None), simulations.c.binned == 1)
    simulation = select(simulations.c.id).where(simulations.c.digest == digest, kept)
    return any(c.execute(query.limit(1)).first() is not None for query in (model, binned, simulation))
