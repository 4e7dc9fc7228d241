"""Records of rows: what a statement reads of a table, a frozen record with its fields in the order of the columns.

A column that holds JSON is text here, and the record has a property that decodes it: a list that shows no document
reads none. The types are those of the table, as `tests/unit/test_stored_rows.py` checks; the database keeps to them.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, FromClause


class StoredRow(msgspec.Struct, frozen=True, gc=False):
    """A row, or a part of it; its fields are named as the columns."""


R = TypeVar("R", bound=StoredRow)


def columns_of(table: FromClause, record: type[StoredRow]) -> Sequence[ColumnElement[Any]]:
    """Return the columns of a table that a record has, for `select` and `returning`."""
    return [table.c[name] for name in record.__struct_fields__]


def read_rows(rows: Iterable[Sequence[Any]], record: type[R]) -> list[R]:
    """Return the records of rows with the columns of `columns_of`."""
    return [record(*row) for row in rows]


def read_row(row: Sequence[Any] | None, record: type[R]) -> R | None:
    """Return the record of a row with the columns of `columns_of`; None for none."""
    return None if row is None else record(*row)
