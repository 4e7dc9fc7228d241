"""Owned tables in SQL: those whose rows belong to a project, and the condition that a scope is.

Every statement on them has that condition in itself, so that what another project owns is as if it were not there;
`tests/unit/test_owned_tables.py` checks it.
"""

from sqlalchemy import ColumnElement, Connection, CursorResult, Select, bindparam, true

from core.domain.access.scopes import Scope
from core.store.rows import StoredTable
from core.store.tables import metadata

#: Name of the column, in each owned table, of the project that a row belongs to.
PROJECT_COLUMN = "project"
OWNED_TABLES = frozenset(table.name for table in metadata.tables.values() if PROJECT_COLUMN in table.c)


def within(table: StoredTable, scope: Scope) -> ColumnElement[bool]:
    """Return the condition that a row of an owned table is in a scope."""
    return true() if scope.project is None else table.c[PROJECT_COLUMN] == scope.project


class OwnedQuery:
    """A query of an owned table that is built once: for the rows of one project, and for those of all."""

    def __init__(self, table: StoredTable, query: "Select[*tuple[object, ...]]") -> None:
        self._of_all = query
        self._of_project = query.where(table.c[PROJECT_COLUMN] == bindparam(PROJECT_COLUMN))

    def execute(self, c: Connection, scope: Scope, **values: object) -> "CursorResult[*tuple[object, ...]]":
        """Return the rows of a scope."""
        if scope.project is None:
            return c.execute(self._of_all, values)
        return c.execute(self._of_project, {PROJECT_COLUMN: scope.project, **values})


def within_text(scope: Scope) -> tuple[list[str], dict[str, object]]:
    """Return the same as conditions of a statement in words, and their values."""
    return ([], {}) if scope.project is None else ([f"{PROJECT_COLUMN} = :project"], {"project": scope.project})
