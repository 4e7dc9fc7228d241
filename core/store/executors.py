"""Executors in SQL: health and load as the dispatcher last recorded them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, select, text

from core.store.tables import executors

_KEEP = text(
    "INSERT INTO executors(name, kind, workers, in_use, healthy, last_error, since)"
    " VALUES(:name, :kind, :workers, :in_use, :healthy, :last_error, :now) ON CONFLICT(name) DO UPDATE"
    " SET kind=excluded.kind, workers=excluded.workers, in_use=excluded.in_use, healthy=excluded.healthy,"
    " last_error=excluded.last_error,"
    " since=CASE WHEN executors.healthy=excluded.healthy THEN executors.since ELSE excluded.since END"
)
_FORGET_OTHERS = delete(executors).where(executors.c.name.not_in(bindparam("names", expanding=True)))


def keep(c: Connection, name: str, values: Mapping[str, Any], now: float) -> None:
    """Store an executor's health; ``since`` changes when ``healthy`` does."""
    c.execute(_KEEP, {"name": name, "now": now, **values})


def forget_others(c: Connection, names: Sequence[str]) -> None:
    """Remove executors that are no longer configured."""
    c.execute(_FORGET_OTHERS, {"names": names})


def all(c: Connection) -> Sequence[Row[Any]]:
    """Return all executors, by name."""
    return c.execute(select(executors).order_by(executors.c.name)).all()
