"""Executors in SQL: health and load as the dispatcher last recorded them, and which are drained."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, delete, exists, select, text

from core.domain.scheduling.queue_reasons import why_closed
from core.store.rows import StoredRow, columns_of, read_rows
from core.store.tables import executor_drains, executors


class ExecutorRow(StoredRow, frozen=True, gc=False):
    """An executor's health; ``since``: of the present value of ``healthy``."""

    name: str
    in_use: int
    healthy: int
    last_error: str | None
    since: float


class DrainRow(StoredRow, frozen=True, gc=False):
    """Why and since when an executor is given no simulations."""

    name: str
    reason: str
    drained_by: str
    since: float


_EXECUTORS = select(*columns_of(executors, ExecutorRow)).order_by(executors.c.name)
_DRAINS = select(*columns_of(executor_drains, DrainRow))
_KEEP = text(
    "INSERT INTO executors(name, kind, workers, in_use, healthy, last_error, since)"
    " VALUES(:name, :kind, :workers, :in_use, :healthy, :last_error, :now) ON CONFLICT(name) DO UPDATE"
    " SET kind=excluded.kind, workers=excluded.workers, in_use=excluded.in_use, healthy=excluded.healthy,"
    " last_error=excluded.last_error,"
    " since=CASE WHEN executors.healthy=excluded.healthy THEN executors.since ELSE excluded.since END"
)
_DRAIN = text(
    "INSERT INTO executor_drains(name, reason, drained_by, since) VALUES(:name, :reason, :by, :now)"
    " ON CONFLICT(name) DO UPDATE SET reason=excluded.reason, drained_by=excluded.drained_by"
)
_UNDRAIN = delete(executor_drains).where(executor_drains.c.name == bindparam("executor"))
_IS_DRAINED = select(exists().where(executor_drains.c.name == bindparam("executor")))
_FORGET_OTHERS = delete(executors).where(executors.c.name.not_in(bindparam("names", expanding=True)))


def keep(c: Connection, name: str, values: Mapping[str, object], now: float) -> None:
    """Store an executor's health; ``since`` changes when ``healthy`` does."""
    c.execute(_KEEP, {"name": name, "now": now, **values})


def forget_others(c: Connection, names: Sequence[str]) -> None:
    """Remove executors that are no longer configured."""
    c.execute(_FORGET_OTHERS, {"names": names})


def all(c: Connection) -> list[ExecutorRow]:
    """Return all executors, by name."""
    return read_rows(c.execute(_EXECUTORS), ExecutorRow)


def drain(c: Connection, name: str, *, reason: str, by: str, now: float) -> None:
    """Drain an executor; of one that is drained already, replace the reason."""
    c.execute(_DRAIN, {"name": name, "reason": reason, "by": by, "now": now})


def undrain(c: Connection, name: str) -> None:
    """Let an executor be given simulations again."""
    c.execute(_UNDRAIN, {"executor": name})


def drains(c: Connection) -> dict[str, DrainRow]:
    """Return the drains, by the executor's name."""
    return {row.name: row for row in read_rows(c.execute(_DRAINS), DrainRow)}


def is_drained(c: Connection, name: str) -> bool:
    """Return whether an executor is drained."""
    return bool(c.scalar(_IS_DRAINED, {"executor": name}))


def closed(c: Connection) -> dict[str, str]:
    """Return why executors are given no simulations, by the name of those that are not."""
    reasons = {row.name: why_closed(row.last_error) for row in all(c) if not row.healthy}
    return reasons | {name: why_closed(None, drained=row.reason) for name, row in drains(c).items()}
