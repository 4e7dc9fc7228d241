"""Idempotency keys in SQL: which request a caller has sent under a key, and what it created."""

from sqlalchemy import Connection, bindparam, insert, select

from core.store.rows import StoredRow, columns_of, read_row
from core.store.tables import idempotency


class IdempotencyRow(StoredRow, frozen=True, gc=False):
    """A request with an idempotency key, by its digest, and the simulation or comparison that it created."""

    digest: str
    simulation_id: str | None


_IDEMPOTENCY_KEY = select(*columns_of(idempotency, IdempotencyRow)).where(
    idempotency.c.principal == bindparam("p"), idempotency.c.key == bindparam("k")
)


def find(c: Connection, principal: str, key: str, now: float) -> IdempotencyRow | None:
    """Return the row of an idempotency key, or None if it does not exist or has expired."""
    unexpired = _IDEMPOTENCY_KEY.where(idempotency.c.expires_at > now)
    return read_row(c.execute(unexpired, {"p": principal, "k": key}).first(), IdempotencyRow)


def remember(
    c: Connection, principal: str, key: str, digest: str, simulation: str, now: float, until: float
) -> IdempotencyRow | None:
    """Insert an idempotency key; return the existing row instead if there is one that has not expired."""
    c.execute(idempotency.delete().where(idempotency.c.expires_at < now))
    existing = read_row(c.execute(_IDEMPOTENCY_KEY, {"p": principal, "k": key}).first(), IdempotencyRow)
    if existing is None:
        row = {"principal": principal, "key": key, "digest": digest, "simulation_id": simulation, "expires_at": until}
        c.execute(insert(idempotency).values(**row))
    return existing
