"""Owned tables in SQL: those whose rows belong to a project, and the condition that a scope is.

Every statement on them has that condition in itself, so that what another project owns is as if it were not there;
`tests/unit/test_owned_tables.py` checks it.
"""

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Select,
    Text,
    and_,
    bindparam,
    literal,
    or_,
    select,
    true,
)

from core.domain.access.scopes import ReadScope, Scope
from core.domain.access.shared_kinds import SharedKind
from core.store.rows import StoredTable
from core.store.tables import metadata, shares

#: Name of the column, in each owned table, of the project that a row belongs to.
PROJECT_COLUMN = "project"
OWNED_TABLES = frozenset(table.name for table in metadata.tables.values() if PROJECT_COLUMN in table.c)
#: Owned tables whose rows may be shared: the kind, and the column that a share names.
_SHARED_TABLES = {
    "models": (SharedKind.MODELS, "name"),
    "dataset_versions": (SharedKind.DATASETS, "name"),
    "simulations": (SharedKind.SIMULATIONS, "id"),
}


def within(table: StoredTable, scope: Scope | ReadScope) -> ColumnElement[bool]:
    """Return the condition that a row of an owned table is in a scope."""
    if isinstance(scope, ReadScope):
        readable = _readable(table, literal(scope.reader))
        return and_(table.c[PROJECT_COLUMN] == scope.owner, readable) if scope.owner else readable
    return true() if scope.project is None else table.c[PROJECT_COLUMN] == scope.project


def _readable(table: StoredTable, reader: ColumnElement[str]) -> ColumnElement[bool]:
    """Return the condition that a project owns a row, or that the row is shared with it."""
    owner = table.c[PROJECT_COLUMN]
    if table.name not in _SHARED_TABLES:
        return owner == reader
    kind, column = _SHARED_TABLES[table.name]
    shared = select(shares.c.owner).where(
        shares.c.owner == owner,
        shares.c.kind == kind.value,
        shares.c.name == table.c[column],
        or_(shares.c.version_id == "", shares.c.version_id == table.c.id),
        shares.c.shared_with == reader,
    )
    return or_(owner == reader, shared.exists())


class OwnedQuery:
    """A query of an owned table that is built once: for the rows of a project, for what it may read, and for all."""

    def __init__(self, table: StoredTable, query: "Select[*tuple[object, ...]]") -> None:
        self._table = table
        self._of_all = query
        self._of_project = query.where(table.c[PROJECT_COLUMN] == bindparam(PROJECT_COLUMN))
        self._of_reader = query.where(_readable(table, bindparam("reader", type_=Text)))

    def execute(self, c: Connection, scope: Scope | ReadScope, **values: object) -> "CursorResult[*tuple[object, ...]]":
        """Return the rows of a scope."""
        if isinstance(scope, ReadScope):
            if scope.owner:
                return c.execute(self._of_all.where(within(self._table, scope)), values)
            return c.execute(self._of_reader, {"reader": scope.reader, **values})
        if scope.project is None:
            return c.execute(self._of_all, values)
        return c.execute(self._of_project, {PROJECT_COLUMN: scope.project, **values})


def within_text(scope: Scope) -> tuple[list[str], dict[str, object]]:
    """Return the same as conditions of a statement in words, and their values."""
    return ([], {}) if scope.project is None else ([f"{PROJECT_COLUMN} = :project"], {"project": scope.project})
