"""Imports of models by reference in SQL: what is fetched, by which job, for which simulation, and how it ended."""

from collections.abc import Mapping

from sqlalchemy import Connection, insert, select

from core.domain.access.scopes import Scope
from core.store.claims import Claims
from core.store.owned import within
from core.store.recording import note
from core.store.rows import StoredRow, columns_of, read_row
from core.store.tables import model_imports as table

CLAIMS = Claims(table=table, needed="state='fetching'")


class ModelImportRow(StoredRow, frozen=True, gc=False):
    """An import. ``simulation_id``: of the simulation that waits for it. ``connection``: empty for addresses.

    ``options``: of the model, as `Models.add` has them. ``source``: what the reference was resolved to.
    """

    id: str
    project: str
    made_by: str
    simulation_id: str | None
    reference: str
    connection: str
    options: str
    state: str
    reason: str | None
    bytes: int
    model_id: str | None
    digest: str | None
    source: str | None
    failures: int
    created_at: float
    ended_at: float | None


def add(c: Connection, values: Mapping[str, object]) -> None:
    """Insert an import in the state `fetching`."""
    id = c.scalar(insert(table).values(state="fetching", **values).returning(table.c.id))
    note(c, f"imports/{id}")


def find(c: Connection, scope: Scope, id: str) -> ModelImportRow | None:
    """Return an import's row, or None."""
    query = select(*columns_of(table, ModelImportRow)).where(within(table, scope), table.c.id == id)
    return read_row(c.execute(query).first(), ModelImportRow)
