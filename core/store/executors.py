"""Executors in SQL: how each place fared when the dispatcher last looked."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from core.store.tables import executors


def keep(c: Connection, name: str, values: Mapping[str, Any], now: float) -> None:
    """Write down how one fares; ``since`` moves when it falls ill or gets well."""
    known = c.execute(select(executors).where(executors.c.name == name)).first()
    if known is None:
        c.execute(insert(executors).values(name=name, since=now, **values))
        return
    since = known.since if bool(known.healthy) == bool(values["healthy"]) else now
    c.execute(update(executors).where(executors.c.name == name).values(since=since, **values))


def forget_others(c: Connection, names: Sequence[str]) -> None:
    """Remove those that are configured no more."""
    c.execute(delete(executors).where(executors.c.name.not_in(names)))


def all(c: Connection) -> Sequence[Row[Any]]:
    """Return each, by name."""
    return c.execute(select(executors).order_by(executors.c.name)).all()
