"""Shares in SQL: which projects may read what another one has; `core/store/owned.py` makes a condition of it."""

from collections.abc import Mapping

from sqlalchemy import Connection, delete, or_, select, text

from core.domain.access.shared_kinds import SharedKind
from core.store.rows import StoredRow, columns_of, read_rows
from core.store.tables import shares


class ShareRow(StoredRow, frozen=True, gc=False):
    """A share of an owner with a project; ``version_id`` is empty if it is all versions of the name."""

    id: str
    owner: str
    kind: str
    name: str
    version_id: str
    shared_with: str
    shared_by: str
    created_at: float


def add(c: Connection, values: Mapping[str, object]) -> None:
    """Insert a share, unless it is there."""
    names = ", ".join(values)
    given = ", ".join(f":{name}" for name in values)
    c.execute(text(f"INSERT INTO shares ({names}) VALUES ({given}) ON CONFLICT DO NOTHING"), values)


def remove(c: Connection, owner: str, kind: SharedKind, name: str, version_id: str, shared_with: str) -> bool:
    """Delete a share; False if there is none."""
    of_owner = (shares.c.owner == owner, shares.c.kind == kind.value, shares.c.shared_with == shared_with)
    deleting = delete(shares).where(*of_owner, shares.c.name == name, shares.c.version_id == version_id)
    return c.execute(deleting.returning(shares.c.owner)).first() is not None


def forget(c: Connection, owner: str, kind: SharedKind, name: str, version_id: str, *, last: bool) -> None:
    """Delete the shares of a version that is deleted, and those of its name if it was the ``last`` one."""
    of_name = (shares.c.owner == owner, shares.c.kind == kind.value, shares.c.name == name)
    gone = ("", version_id) if last else (version_id,)
    c.execute(delete(shares).where(*of_name, shares.c.version_id.in_(gone)))


def owners(c: Connection, reader: str, kind: SharedKind, name: str) -> list[str]:
    """Return the projects that share something of a name with a reader, by name."""
    query = select(shares.c.owner).where(
        shares.c.shared_with == reader, shares.c.kind == kind.value, shares.c.name == name
    )
    return list(c.scalars(query.distinct().order_by(shares.c.owner)))


def page(c: Connection, project: str, after: str | None, limit: int) -> list[ShareRow]:
    """Return what a project shares and what is shared with it, newest first, older than ``after``."""
    query = select(*columns_of(shares, ShareRow)).where(or_(shares.c.owner == project, shares.c.shared_with == project))
    if after is not None:
        query = query.where(shares.c.id < after)
    return read_rows(c.execute(query.order_by(shares.c.id.desc()).limit(limit)), ShareRow)


def forget_project(c: Connection, project: str) -> None:
    """Delete the shares of a project that is removed, and those with it."""
    c.execute(delete(shares).where(or_(shares.c.owner == project, shares.c.shared_with == project)))
