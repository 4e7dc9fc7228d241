"""Uploads in SQL: offset and state of each upload, and the objects that hold its bytes.

Every change is one conditional UPDATE (compare-and-set) instead of a lock: a request with an outdated view changes no
row, and learns it from the result.
"""

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, delete, func, insert, literal, or_, select, update

from core.domain.access.quotas import Charge
from core.domain.access.scopes import Scope
from core.store import quotas
from core.store.owned import within
from core.store.recording import note
from core.store.rows import StoredRow, columns_of, read_row, read_rows
from core.store.tables import dataset_versions as versions
from core.store.tables import upload_parts as parts
from core.store.tables import uploads


class UploadRow(StoredRow, frozen=True, gc=False):
    """An upload; ``length`` is None while it is not known."""

    id: str
    project: str
    kind: str
    length: int | None
    offset: int
    metadata: str
    sources: str | None
    writer: str | None
    created_at: float
    expires_at: float
    held_until: float
    caller: str


class PartRow(StoredRow, frozen=True, gc=False):
    """A part of an upload: the object with its bytes from ``start`` on."""

    start: int
    bytes: int
    object: str


_COLUMNS = columns_of(uploads, UploadRow)
_SELECT = select(*_COLUMNS)


def _unfinished() -> ColumnElement[bool]:
    return or_(uploads.c.length.is_(None), uploads.c.offset < uploads.c.length)


def add(c: Connection, values: Mapping[str, object]) -> UploadRow:
    """Insert an upload."""
    [added] = read_rows(c.execute(insert(uploads).values(**values).returning(*_COLUMNS)), UploadRow)
    note(c, f"uploads/{added.id}")
    return added


def find(c: Connection, scope: Scope, id: str) -> UploadRow | None:
    """Return an upload."""
    return read_row(c.execute(_SELECT.where(within(uploads, scope), uploads.c.id == id)).first(), UploadRow)


def page(c: Connection, scope: Scope, *, after: str | None, limit: int) -> list[UploadRow]:
    """Return up to ``limit`` uploads, newest first, older than ``after``."""
    query = _SELECT.where(within(uploads, scope))
    if after is not None:
        query = query.where(uploads.c.id < after)
    return read_rows(c.execute(query.order_by(uploads.c.id.desc()).limit(limit)), UploadRow)


def unfinished(c: Connection, scope: Scope, now: float) -> int:
    """Return the number of uploads that still miss bytes."""
    waiting = select(func.count()).select_from(uploads).where(within(uploads, scope), uploads.c.expires_at > now)
    return c.scalar(waiting.where(_unfinished())) or 0


def unfinished_of(c: Connection, scope: Scope, caller: str, now: float) -> tuple[int, float]:
    """Return the number of a caller's uploads that still miss bytes, and when the next of them expires."""
    waiting = select(func.count(), func.min(uploads.c.expires_at)).where(
        within(uploads, scope), uploads.c.caller == caller, uploads.c.expires_at > now, _unfinished()
    )
    count, expires_at = c.execute(waiting).one()
    return count, now if expires_at is None else expires_at


# -- writing


def take(c: Connection, scope: Scope, id: str, offset: int, writer: str, length: int | None) -> UploadRow | None:
    """Make ``writer`` the only writer of an upload, replacing another; None unless its offset is ``offset``.

    ``length`` is stored if it was unknown; otherwise it must be equal. It is never below the offset.
    """
    unfinished = (uploads.c.offset == offset, uploads.c.kind != "final")
    query = update(uploads).where(within(uploads, scope), uploads.c.id == id, *unfinished)
    changes: dict[str, object] = {"writer": writer}
    if length is not None:
        query = query.where(or_(uploads.c.length.is_(None), uploads.c.length == length), uploads.c.offset <= length)
        changes["length"] = length
    return read_row(c.execute(query.values(**changes).returning(*_COLUMNS)).first(), UploadRow)


def advance(
    c: Connection,
    id: str,
    writer: str,
    stored: Sequence[tuple[int, int, str]],
    *,
    since: int,
    expires_at: float,
    over: bool,
) -> UploadRow | None:
    """Advance the offset from ``since`` past durable parts (start, bytes, object); None if another request writes.

    Raise QuotaExceeded if the project has no room for the parts.
    """
    to = since + sum(size for _, size, _ in stored)
    query = update(uploads).where(uploads.c.id == id, uploads.c.offset == since, uploads.c.writer == writer)
    following = None if over else writer
    advancing = query.values(offset=to, expires_at=expires_at, writer=following).returning(*_COLUMNS)
    row = read_row(c.execute(advancing).first(), UploadRow)
    if row is not None and stored:
        rows = [{"upload_id": id, "start": start, "bytes": size, "object": key} for start, size, key in stored]
        c.execute(insert(parts), rows)
        quotas.charge(c, row.project, row.caller, Charge(stored_bytes=to - since))
    return row


def release(c: Connection, id: str, writer: str, offset: int | None = None) -> bool:
    """Remove ``writer`` from an upload (if its offset is ``offset``, where given); return whether it was the writer."""
    query = update(uploads).where(uploads.c.id == id, uploads.c.writer == writer)
    if offset is not None:
        query = query.where(uploads.c.offset == offset)
    return c.execute(query.values(writer=None).returning(uploads.c.id)).first() is not None


def lock(c: Connection, scope: Scope, ids: Collection[str]) -> dict[str, UploadRow]:
    """Return uploads by id, locked until the transaction ends."""
    touched = update(uploads).where(within(uploads, scope), uploads.c.id.in_(ids))
    rows = c.execute(touched.values(held_until=uploads.c.held_until).returning(*_COLUMNS))
    return {row.id: row for row in read_rows(rows, UploadRow)}


def refer(c: Connection, id: str, source: str, start: int) -> None:
    """Let an upload refer to the parts of another, from ``start`` on; no bytes are copied."""
    referenced = select(literal(id), parts.c.start + start, parts.c.bytes, parts.c.object).where(
        parts.c.upload_id == source
    )
    c.execute(insert(parts).from_select(["upload_id", "start", "bytes", "object"], referenced))


def hold(c: Connection, scope: Scope, id: str, until: float) -> bool:
    """Protect an upload from expiry until then; return whether it exists."""
    held = update(uploads).where(within(uploads, scope), uploads.c.id == id).values(held_until=until)
    return c.execute(held.returning(uploads.c.id)).first() is not None


def let_go(c: Connection, scope: Scope, id: str) -> None:
    """End the protection of an upload, unless a dataset version is being registered from it."""
    lock(c, scope, [id])  # first: a registration that starts at this moment is seen below, or waits for the lock
    in_use = select(versions.c.id).where(versions.c.state == "registering", versions.c.source.contains(id))
    released = update(uploads).where(within(uploads, scope), uploads.c.id == id, ~in_use.exists())
    c.execute(released.values(held_until=0.0))


# -- reading


def parts_from(c: Connection, id: str, position: int, limit: int = 256) -> list[PartRow]:
    """Return parts in order, from the part with the byte at ``position`` on."""
    first = select(func.max(parts.c.start)).where(parts.c.upload_id == id, parts.c.start <= position)
    query = select(*columns_of(parts, PartRow)).where(parts.c.upload_id == id, parts.c.start >= first.scalar_subquery())
    return read_rows(c.execute(query.order_by(parts.c.start).limit(limit)), PartRow)


# -- the end


def remove(c: Connection, scope: Scope, id: str) -> list[str] | None:
    """Delete an upload; return the objects of its parts, or None if there is no such upload."""
    deleting = delete(uploads).where(within(uploads, scope), uploads.c.id == id)
    owner = c.execute(deleting.returning(uploads.c.project, uploads.c.caller)).first()
    if owner is None:
        return None
    deleted = delete(parts).where(parts.c.upload_id == id).returning(parts.c.object, parts.c.bytes)
    sizes = {key: size for key, size in c.execute(deleted)}
    freed = sum(sizes[key] for key in unreferenced(c, list(sizes)))
    quotas.charge(c, owner.project, owner.caller, Charge(stored_bytes=-freed), refuse=False)
    return list(sizes)


def expired(c: Connection, now: float, grace: float, limit: int = 100) -> list[str]:
    """Return expired uploads that are not protected; one with a writer expires ``grace`` seconds later."""
    unwritten = or_(uploads.c.writer.is_(None), uploads.c.expires_at <= now - grace)
    over = select(uploads.c.id).where(uploads.c.expires_at <= now, uploads.c.held_until <= now, unwritten)
    return list(c.scalars(over.order_by(uploads.c.expires_at).limit(limit)))


def unreferenced(c: Connection, keys: Sequence[str]) -> list[str]:
    """Return the objects among ``keys`` that no upload refers to."""
    referenced: set[str] = set()
    for first in range(0, len(keys), 500):
        referenced.update(c.scalars(select(parts.c.object).where(parts.c.object.in_(keys[first : first + 500]))))
    return [key for key in keys if key not in referenced]
