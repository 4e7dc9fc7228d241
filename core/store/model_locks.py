"""Locks of models in SQL: what a model's declared dependencies were resolved to, once and for ever.

A row is about a content (its digest) and a target (interpreter and machine); it outlives the model's name.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, select, text

from core.store.tables import model_locks

_ADD = text(
    "INSERT INTO model_locks(digest, target, lock, created_at) VALUES(:digest, :target, :lock, :now)"
    " ON CONFLICT DO NOTHING"
)


def find(c: Connection, digest: str, target: str) -> str | None:
    """Return the lock of a model's content for a target, None if it was not resolved yet."""
    query = select(model_locks.c.lock).where(model_locks.c.digest == digest, model_locks.c.target == target)
    lock: str | None = c.scalar(query)
    return lock


def all_of(c: Connection, digest: str) -> Sequence[str]:
    """Return the locks of a model's content, for all targets."""
    return c.scalars(select(model_locks.c.lock).where(model_locks.c.digest == digest)).all()


def add(c: Connection, digest: str, target: str, lock: str, now: float) -> str:
    """Store a lock unless there is one; return the lock that is stored."""
    c.execute(_ADD, {"digest": digest, "target": target, "lock": lock, "now": now})
    stored = find(c, digest, target)
    assert stored is not None
    return stored
