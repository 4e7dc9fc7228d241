"""Imports of models by reference in SQL: what is fetched, by which job, for which simulation, and how it ended."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from core.store.claims import Claims
from core.store.tables import model_imports as table

CLAIMS = Claims(table=table, needed="state='fetching'")


def add(c: Connection, values: Mapping[str, Any]) -> None:
    """Insert an import in the state `fetching`."""
    c.execute(insert(table).values(state="fetching", **values))


def find(c: Connection, id: str) -> Row[Any] | None:
    """Return an import's row, or None."""
    return c.execute(select(table).where(table.c.id == id)).first()
