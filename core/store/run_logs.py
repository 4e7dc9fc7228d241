"""Results to log to MLflow runs in SQL: one row per simulation that asked for it, due once its summary is written."""

from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, or_, select, text, update

from core.domain.scheduling.states import FINAL
from core.store.tables import run_logs as table

_ENDED = sorted(state.value for state in FINAL)
#: The state is a literal, not a parameter, so that the partial index is used; a join would begin with all simulations
#: that have ended.
_DUE = text(
    "SELECT simulation_id FROM run_logs WHERE state='waiting' AND not_before<=:now AND claim_until<:now AND EXISTS"
    " (SELECT 1 FROM simulations s WHERE s.id=run_logs.simulation_id AND s.state IN :ended AND s.summary IS NOT NULL"
    " AND s.deleted_at IS NULL) ORDER BY simulation_id LIMIT 100"
).bindparams(bindparam("ended", expanding=True))


def add(c: Connection, simulation: str, connection: str) -> None:
    """Insert what is to be logged at the end of a simulation."""
    c.execute(insert(table).values(simulation_id=simulation, connection=connection, state="waiting"))


def find(c: Connection, simulation: str) -> Row[Any] | None:
    """Return a simulation's row, or None."""
    return c.execute(select(table).where(table.c.simulation_id == simulation)).first()


def due(c: Connection, now: float) -> list[str]:
    """Return the simulations that have ended with a summary and whose results no job logs at present, at most 100."""
    return list(c.scalars(_DUE, {"now": now, "ended": _ENDED}))


def claim(c: Connection, simulation: str, who: str, seconds: float, now: float) -> bool:
    """Claim a simulation's row for ``seconds``; return False if another job has it or it is done."""
    free = or_(table.c.claim.is_(None), table.c.claim_until < now, table.c.claim == who)
    claiming = update(table).where(table.c.simulation_id == simulation, table.c.state == "waiting", free)
    values = {"claim": who, "claim_until": now + seconds}
    return c.execute(claiming.values(**values).returning(table.c.simulation_id)).first() is not None


def change(c: Connection, simulation: str, who: str, **values: Any) -> bool:
    """Change a row that ``who`` has claimed, and end the claim; return False if the claim is lost."""
    changing = update(table).where(table.c.simulation_id == simulation, table.c.claim == who)
    changed = changing.values(claim=None, claim_until=0.0, **values).returning(table.c.simulation_id)
    return c.execute(changed).first() is not None
