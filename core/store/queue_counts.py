"""Counts of simulations that wait, and of what runs, by executor; they read every row that waits."""

from sqlalchemy import Connection, bindparam, text

from core.domain.scheduling.states import WAITING_STATES
from core.store.rows import StoredRow, read_rows
from core.store.tables import LISTED_ROWS


class WaitingGroup(StoredRow, frozen=True, gc=False):
    """Simulations before they run that wait for the same; ``tasks``: without a result; ``since``: of the oldest."""

    state: str
    executor: str | None
    awaits_model: int
    paused: int
    unprepared: int
    simulations: int
    tasks: int | None
    since: float


class LeaseSums(StoredRow, frozen=True, gc=False):
    """Leases that an executor's workers hold: their number, tasks without a result, and tasks per second."""

    executor: str
    leases: int
    tasks: int | None
    rate: float | None


#: The executor that a submission names, where it is not admitted yet.
_NAMED = {
    "sqlite": "json_extract(s.spec, '$.placement.executor')",
    "postgresql": "s.spec::json -> 'placement' ->> 'executor'",
}
#: Tasks without a result are those that were never leased, and the rest of ranges that were.
_WAITING = (
    "SELECT state, executor, awaits_model, paused, unprepared,"
    " count(*) AS simulations, sum(tasks) AS tasks, min(since) AS since"
    " FROM (SELECT s.state, CASE WHEN s.state='queued' THEN {named} ELSE s.executor END AS executor,"
    " s.awaits_model, CASE WHEN s.not_before>:now THEN 1 ELSE 0 END AS paused,"
    " CASE WHEN s.preparation='waiting' THEN 1 ELSE 0 END AS unprepared, s.created_at AS since,"
    " (SELECT sum(g.total-g.next) FROM stages g WHERE g.simulation_id=s.id) + coalesce((SELECT sum(r.stop-r.cursor)"
    " FROM stages g JOIN ranges r ON r.stage_id=g.id WHERE g.simulation_id=s.id AND r.state<>'done'), 0) AS tasks"
    f" FROM simulations s WHERE s.state IN :states AND {LISTED_ROWS}) AS waiting"
    " GROUP BY state, executor, awaits_model, paused, unprepared"
    " ORDER BY state, executor, awaits_model, paused, unprepared"
)
_LEASES = text(
    "SELECT l.executor, count(*) AS leases, sum(r.stop-r.cursor) AS tasks, sum(r.rate) AS rate"
    " FROM ranges r JOIN launches l ON l.id=r.launch_id"
    " WHERE r.state='leased' GROUP BY l.executor"
)
_LAUNCHES = text("SELECT executor, count(*) AS launches FROM launches WHERE state='live' GROUP BY executor")


def waiting(c: Connection, now: float) -> list[WaitingGroup]:
    """Return groups of simulations before they run: by state, executor, and what holds them."""
    query = text(_WAITING.format(named=_NAMED[c.dialect.name])).bindparams(bindparam("states", expanding=True))
    return read_rows(c.execute(query, {"states": sorted(WAITING_STATES), "now": now}), WaitingGroup)


def leases(c: Connection) -> dict[str, LeaseSums]:
    """Return the leases that are held, by executor: their number, tasks without a result, and tasks per second."""
    return {row.executor: row for row in read_rows(c.execute(_LEASES), LeaseSums)}


def launches(c: Connection) -> dict[str, int]:
    """Return the number of live launches, by executor."""
    return {row.executor: row.launches for row in c.execute(_LAUNCHES)}
