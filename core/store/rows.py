"""Records of rows: what a statement reads of a table, a frozen record with its fields in the order of the columns.

A column that holds JSON is text here, and the record has a property that decodes it: a list that shows no document
reads none. The types are those of the table, as `tests/unit/test_stored_rows.py` checks; the database keeps to them.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
from sqlalchemy import Column, ColumnElement, Table
from sqlalchemy.sql.base import ReadOnlyColumnCollection

#: A table; columns of which a statement reads the types from a record.
StoredTable = Table[ReadOnlyColumnCollection[str, Column[object]]]


class StoredRow(msgspec.Struct, frozen=True, gc=False):
    """A row, or a part of it; its fields are named as the columns."""


R = TypeVar("R", bound=StoredRow)


def columns_of(
    table: StoredTable, record: type[StoredRow], **others: ColumnElement[object]
) -> Sequence[ColumnElement[object]]:
    """Return the columns of a table that a record has, for `select` and `returning`; ``others``: not of the table."""
    fields = record.__struct_fields__
    return [others[name].label(name) if name in others else table.c[name] for name in fields]


def read_rows(rows: Iterable[Sequence[object]], record: type[R]) -> list[R]:
    """Return the records of rows with the columns of `columns_of`."""
    return [record(*row) for row in rows]


def read_row(row: Sequence[object] | None, record: type[R]) -> R | None:
    """Return the record of a row with the columns of `columns_of`; None for none."""
    return None if row is None else record(*row)
