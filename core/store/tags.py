"""Tags in SQL: `name@tag` is the version that the tag refers to; models and datasets have a table each."""

from collections.abc import Sequence

from sqlalchemy import Column, Connection, Select, TypedColumns, and_, delete, insert, select, update

from core.domain.access.scopes import ReadScope, Scope
from core.store.owned import within
from core.store.rows import StoredTable


class _TagColumns(TypedColumns):
    project: Column[str]
    name: Column[str]
    tag: Column[str]
    version_id: Column[str]


class Tags:
    """The tags in one table, which has the columns `project`, `name`, `tag` and `version_id`."""

    def __init__(self, table: StoredTable) -> None:
        self._table = table.with_cols(_TagColumns)

    def put(self, c: Connection, scope: Scope, name: str, tag: str, version: str) -> None:
        """Let a tag refer to a version; the caller holds the version's row against deletion."""
        t = self._table
        where = and_(within(self._table, scope), t.c.name == name, t.c.tag == tag)
        if c.execute(update(t).where(where).values(version_id=version).returning(t.c.tag)).first() is None:
            c.execute(insert(t).values(project=scope.owner, name=name, tag=tag, version_id=version))

    def drop(self, c: Connection, scope: Scope, name: str, tag: str) -> bool:
        """Delete a tag; return False if there is none."""
        t = self._table
        where = and_(within(self._table, scope), t.c.name == name, t.c.tag == tag)
        return c.execute(delete(t).where(where).returning(t.c.tag)).first() is not None

    def drop_all(self, c: Connection, scope: Scope, version: str) -> None:
        """Delete the tags of a version that is being deleted; the caller holds its row."""
        t = self._table
        c.execute(delete(t).where(within(t, scope), t.c.version_id == version))

    def of_versions(self, c: Connection, scope: Scope, ids: Sequence[str]) -> dict[str, list[str]]:
        """Return the tags of versions, by version id."""
        t = self._table
        by_version: dict[str, list[str]] = {}
        query = select(t.c.version_id, t.c.tag).where(within(t, scope), t.c.version_id.in_(ids))
        for id, tag in c.execute(query.order_by(t.c.tag)):
            by_version.setdefault(id, []).append(tag)
        return by_version

    def of_name(self, c: Connection, scope: Scope, name: str, limit: int) -> list[str]:
        """Return up to ``limit`` tags of a name's versions, in order, for the error about an unknown one."""
        t = self._table
        query = select(t.c.tag).where(within(t, scope), t.c.name == name)
        return list(c.scalars(query.order_by(t.c.tag).limit(limit)))

    def tagged(self, scope: Scope | ReadScope, name: str, tag: str) -> Select[str]:
        """Return the query for the id of the version that has a tag, to be part of another query."""
        if isinstance(scope, ReadScope):  # the other query asks what may be read
            scope = scope.of_names
        t = self._table
        return select(t.c.version_id).where(within(t, scope), t.c.name == name, t.c.tag == tag)
