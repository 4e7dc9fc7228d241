"""Imports of models by reference in SQL: what is fetched, by which job, for which simulation, and how it ended."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, text, update

from core.store.tables import model_imports as table

#: The state is no parameter, so that the partial index is used: ended imports stay.
_DUE = text(
    "SELECT id FROM model_imports WHERE state='fetching' AND not_before<=:now AND claim_until<:now"
    " ORDER BY id LIMIT 100"
)


def add(c: Connection, values: Mapping[str, Any]) -> None:
    """Insert an import in the state `fetching`."""
    c.execute(insert(table).values(state="fetching", **values))


def find(c: Connection, id: str) -> Row[Any] | None:
    """Return an import's row, or None."""
    return c.execute(select(table).where(table.c.id == id)).first()


def due(c: Connection, now: float) -> list[str]:
    """Return the imports that may be fetched now and that no job has claimed, at most 100."""
    return list(c.scalars(_DUE, {"now": now}))


def claim(c: Connection, id: str, who: str, seconds: float, now: float) -> bool:
    """HeldClaim an import for ``seconds``; return False if another job has it or it has ended."""
    free = or_(table.c.claim.is_(None), table.c.claim_until < now, table.c.claim == who)
    claiming = update(table).where(table.c.id == id, table.c.state == "fetching", free)
    values = {"claim": who, "claim_until": now + seconds}
    return c.execute(claiming.values(**values).returning(table.c.id)).first() is not None


def change(c: Connection, id: str, who: str, **values: Any) -> bool:
    """Change an import that ``who`` has claimed; return False if the claim is lost."""
    changing = update(table).where(table.c.id == id, table.c.claim == who, table.c.state == "fetching")
    return c.execute(changing.values(**values).returning(table.c.id)).first() is not None


def release(c: Connection, id: str, who: str) -> None:
    """End a claim, so that the next attempt may begin when it is due."""
    releasing = update(table).where(table.c.id == id, table.c.claim == who)
    c.execute(releasing.values(claim=None, claim_until=0.0))
