"""Results to log to MLflow runs in SQL: one row per simulation that asked for it, due once its summary is written."""

from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, update

from core.domain.states import FINAL
from core.store.tables import run_logs as table
from core.store.tables import simulations

_ENDED = sorted(FINAL)


def add(c: Connection, simulation: str, connection: str) -> None:
    """Insert what is to be logged at the end of a simulation."""
    c.execute(insert(table).values(simulation_id=simulation, connection=connection, state="waiting"))


def find(c: Connection, simulation: str) -> Row[Any] | None:
    """Return a simulation's row, or None."""
    return c.execute(select(table).where(table.c.simulation_id == simulation)).first()


def due(c: Connection, now: float) -> list[str]:
    """Return the simulations that have ended with a summary and whose results no job logs at present, at most 100."""
    ended = simulations.c.state.in_(_ENDED) & simulations.c.summary.is_not(None) & simulations.c.deleted_at.is_(None)
    query = select(table.c.simulation_id).join(simulations, simulations.c.id == table.c.simulation_id)
    query = query.where(table.c.state == "waiting", table.c.not_before <= now, table.c.claim_until < now, ended)
    return list(c.scalars(query.order_by(table.c.simulation_id).limit(100)))


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
