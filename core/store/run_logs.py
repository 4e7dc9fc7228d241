"""Results to log to MLflow runs in SQL: one row per simulation that asked for it, due once its summary is written."""

from sqlalchemy import Connection, insert, select

from core.domain.scheduling.states import FINAL
from core.store.claims import Claims
from core.store.rows import StoredRow, columns_of, read_row
from core.store.tables import run_logs as table

_ENDED = ", ".join(f"'{state.value}'" for state in sorted(FINAL))
#: EXISTS and no join, which would begin with all simulations that have ended.
CLAIMS = Claims(
    table=table,
    needed="state='waiting'",
    ready="not_before<=:now AND EXISTS (SELECT 1 FROM simulations s WHERE s.id=run_logs.simulation_id"
    f" AND s.state IN ({_ENDED}) AND s.summary IS NOT NULL AND s.deleted_at IS NULL)",
)


class RunLogRow(StoredRow, frozen=True, gc=False):
    """The MLflow server to which a simulation's results are logged, and how often that failed."""

    connection: str
    failures: int


def add(c: Connection, simulation: str, connection: str) -> None:
    """Insert what is to be logged at the end of a simulation."""
    c.execute(insert(table).values(simulation_id=simulation, connection=connection, state="waiting"))


def find(c: Connection, simulation: str) -> RunLogRow | None:
    """Return a simulation's row, or None."""
    query = select(*columns_of(table, RunLogRow)).where(table.c.simulation_id == simulation)
    return read_row(c.execute(query).first(), RunLogRow)
