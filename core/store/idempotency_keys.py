"""Idempotency keys in SQL: which request was sent under a key, by its digest, and what it created."""

from sqlalchemy import Connection, insert, select

from common.errors import IdempotencyMismatch
from core.domain.access.scopes import Caller
from core.store.owned import within
from core.store.tables import idempotency

#: Seconds for which a key is valid.
TTL = 86_400.0


def find(c: Connection, caller: Caller, key: str, digest: str, now: float) -> str | None:
    """Return the simulation or comparison that the request with a key has created; None for a key that is not valid.

    Raise IdempotencyMismatch if that was another request.
    """
    row = idempotency.c
    query = select(row.digest, row.simulation_id).where(
        within(idempotency, caller.scope), row.principal == caller.principal, row.key == key
    )
    existing = c.execute(query.where(row.expires_at > now)).first()
    if existing is None:
        return None
    if existing.digest != digest:
        raise IdempotencyMismatch()
    return str(existing.simulation_id)


def remember(c: Connection, caller: Caller, key: str, digest: str, created: str, now: float) -> str | None:
    """Insert a key for what is ``created``; return what ``find`` does instead, if the key is valid already."""
    c.execute(idempotency.delete().where(idempotency.c.expires_at <= now))
    existing = find(c, caller, key, digest, now)
    if existing is None:
        row = {
            "project": caller.scope.owner,
            "principal": caller.principal,
            "key": key,
            "digest": digest,
            "simulation_id": created,
        }
        c.execute(insert(idempotency).values(**row, expires_at=now + TTL))
    return existing
