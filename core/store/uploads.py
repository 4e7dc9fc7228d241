"""Uploads in SQL: how far each has come, and the objects its bytes lie in.

Every change is one statement whose WHERE names what the writer believes, so that no lock is ever needed: the one whose
belief is out of date changes nothing, and learns it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, literal, or_, select, update

from core.store.tables import dataset_versions as versions
from core.store.tables import upload_parts as parts
from core.store.tables import uploads


def _unfinished() -> ColumnElement[bool]:
    return or_(uploads.c.length.is_(None), uploads.c.offset < uploads.c.length)


def add(c: Connection, values: Mapping[str, Any]) -> Row[Any]:
    """Insert an upload."""
    return c.execute(insert(uploads).values(**values).returning(uploads)).one()


def find(c: Connection, id: str) -> Row[Any] | None:
    """Return an upload."""
    return c.execute(select(uploads).where(uploads.c.id == id)).first()


def page(c: Connection, project: str, *, after: str | None, limit: int) -> Sequence[Row[Any]]:
    """Return up to ``limit`` uploads, newest first, older than ``after``."""
    query = select(uploads).where(uploads.c.project == project)
    if after is not None:
        query = query.where(uploads.c.id < after)
    return c.execute(query.order_by(uploads.c.id.desc()).limit(limit)).all()


def unfinished(c: Connection, project: str, now: float) -> int:
    """Count the uploads that still wait for bytes."""
    waiting = select(func.count()).select_from(uploads).where(uploads.c.project == project, uploads.c.expires_at > now)
    return c.scalar(waiting.where(_unfinished())) or 0


# -- writing


def take(c: Connection, id: str, offset: int, writer: str, length: int | None) -> Row[Any] | None:
    """Make somebody the writer of an upload that stands at ``offset``, whoever wrote before; None if it does not.

    A ``length`` is set where there was none, and else must be the same; it is never less than what is there.
    """
    query = update(uploads).where(uploads.c.id == id, uploads.c.offset == offset, uploads.c.kind != "final")
    changes: dict[str, Any] = {"writer": writer}
    if length is not None:
        query = query.where(or_(uploads.c.length.is_(None), uploads.c.length == length), uploads.c.offset <= length)
        changes["length"] = length
    return c.execute(query.values(**changes).returning(uploads)).first()


def advance(
    c: Connection,
    id: str,
    writer: str,
    stored: Sequence[tuple[int, int, str]],
    *,
    since: int,
    expires_at: float,
    over: bool,
) -> Row[Any] | None:
    """Advance the offset from ``since`` past durable parts (start, bytes, object); None if another request writes."""
    to = since + sum(size for _, size, _ in stored)
    query = update(uploads).where(uploads.c.id == id, uploads.c.offset == since, uploads.c.writer == writer)
    following = None if over else writer
    row = c.execute(query.values(offset=to, expires_at=expires_at, writer=following).returning(uploads)).first()
    if row is not None and stored:
        rows = [{"upload_id": id, "start": start, "bytes": size, "object": key} for start, size, key in stored]
        c.execute(insert(parts), rows)
    return row


def release(c: Connection, id: str, writer: str, offset: int | None = None) -> bool:
    """Let nobody write any more who wrote as ``writer`` (and stands at ``offset``, where that is given)."""
    query = update(uploads).where(uploads.c.id == id, uploads.c.writer == writer)
    if offset is not None:
        query = query.where(uploads.c.offset == offset)
    return c.execute(query.values(writer=None).returning(uploads.c.id)).first() is not None


def lock(c: Connection, ids: Collection[str]) -> dict[str, Row[Any]]:
    """Return uploads, by id, that nobody can delete or change until this transaction ends."""
    touched = update(uploads).where(uploads.c.id.in_(ids)).values(held_until=uploads.c.held_until)
    return {row.id: row for row in c.execute(touched.returning(uploads))}


def refer(c: Connection, id: str, source: str, start: int) -> None:
    """Give an upload the parts of another one, from ``start`` on; nothing is copied."""
    theirs = select(literal(id), parts.c.start + start, parts.c.bytes, parts.c.object).where(
        parts.c.upload_id == source
    )
    c.execute(insert(parts).from_select(["upload_id", "start", "bytes", "object"], theirs))


def hold(c: Connection, id: str, until: float) -> bool:
    """Keep an upload at least until then; tell whether it is there."""
    held = update(uploads).where(uploads.c.id == id).values(held_until=until)
    return c.execute(held.returning(uploads.c.id)).first() is not None


def let_go(c: Connection, id: str) -> None:
    """Keep an upload no longer, unless a version that is being registered is to be made of it."""
    lock(c, [id])  # first, so that whoever asks for it at this moment has been heard, or waits
    wanted = select(versions.c.id).where(versions.c.state == "registering", versions.c.source.contains(id))
    c.execute(update(uploads).where(uploads.c.id == id, ~wanted.exists()).values(held_until=0.0))


# -- reading


def parts_from(c: Connection, id: str, position: int, limit: int = 256) -> Sequence[Row[Any]]:
    """Return parts in order, the first of which holds the byte at ``position``."""
    first = select(func.max(parts.c.start)).where(parts.c.upload_id == id, parts.c.start <= position)
    query = select(parts).where(parts.c.upload_id == id, parts.c.start >= first.scalar_subquery())
    return c.execute(query.order_by(parts.c.start).limit(limit)).all()


# -- the end


def remove(c: Connection, id: str) -> list[str] | None:
    """Delete an upload; return the objects that were its, or None if it is not there."""
    if c.execute(delete(uploads).where(uploads.c.id == id).returning(uploads.c.id)).first() is None:
        return None
    return list(c.scalars(delete(parts).where(parts.c.upload_id == id).returning(parts.c.object)))


def expired(c: Connection, now: float, limit: int = 100) -> list[str]:
    """Return uploads whose time is over and that nobody holds."""
    over = select(uploads.c.id).where(uploads.c.expires_at <= now, uploads.c.held_until <= now)
    return list(c.scalars(over.order_by(uploads.c.expires_at).limit(limit)))


def unreferenced(c: Connection, keys: Sequence[str]) -> list[str]:
    """Return those of the objects that no upload has bytes in."""
    kept: set[str] = set()
    for at in range(0, len(keys), 500):
        kept.update(c.scalars(select(parts.c.object).where(parts.c.object.in_(keys[at : at + 500]))))
    return [key for key in keys if key not in kept]
