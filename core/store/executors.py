"""Executors in SQL: health and load as the dispatcher last recorded them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from core.store.tables import executors


def keep(c: Connection, name: str, values: Mapping[str, Any], now: float) -> None:
    """Store an executor's health; ``since`` changes when ``healthy`` does."""
    row = c.execute(select(executors).where(executors.c.name == name)).first()
    if row is None:
        c.execute(insert(executors).values(name=name, since=now, **values))
        return
    since = row.since if bool(row.healthy) == bool(values["healthy"]) else now
    c.execute(update(executors).where(executors.c.name == name).values(since=since, **values))


def forget_others(c: Connection, names: Sequence[str]) -> None:
    """Remove executors that are no longer configured."""
    c.execute(delete(executors).where(executors.c.name.not_in(names)))


def all(c: Connection) -> Sequence[Row[Any]]:
    """Return all executors, by name."""
    return c.execute(select(executors).order_by(executors.c.name)).all()
