"""Usage intervals in SQL: opened, continued with other resources and closed with launches, and marked meanwhile.

`core/store/launches.py` calls what changes them, so that no launch begins or ends without. Nothing deletes them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace

from sqlalchemy import Connection, bindparam, insert, select, text

from core.domain.usage.granted_resources import GrantedResources, UsageKind, WarmGrant
from core.domain.usage.usage_intervals import IntervalEnd, IntervalPart, OpenInterval, parts_of
from core.store.rows import StoredRow, columns_of, read_row, read_rows
from core.store.tables import usage_intervals

#: What stands for the executor of jobs.
JOBS = "jobs"


class IntervalRow(StoredRow, frozen=True, gc=False):
    """A usage interval."""

    launch_id: str
    number: int
    project: str
    user: str
    simulation_id: str
    kind: str
    labels: str
    executor: str
    workers: int
    millicores: int
    mebibytes: int
    gpus: int
    until_at: float
    milliseconds: int
    open: int
    estimated: int
    lost: int

    @property
    def granted(self) -> GrantedResources:
        """The resources that it counts."""
        return GrantedResources(self.workers, self.millicores, self.mebibytes, self.gpus)


_OPEN = text(
    'INSERT INTO usage_intervals(launch_id, number, project, "user", simulation_id, kind, labels, executor, workers,'
    " millicores, mebibytes, gpus, until_at)"
    f" SELECT :id, CAST(:number AS INTEGER), project, submitted_by, id, CASE WHEN dry_run=1 THEN '{UsageKind.DRY_RUN}'"
    f" ELSE '{UsageKind.SIMULATION}' END, labels, :executor, CAST(:workers AS INTEGER), CAST(:millicores AS BIGINT),"
    " CAST(:mebibytes AS BIGINT), CAST(:gpus AS BIGINT), CAST(:created_at AS DOUBLE PRECISION)"
    " FROM simulations WHERE id=:simulation_id"
)
#: An attempt of a job, for the project and the user of the row that it worked on; of none: it belongs to nobody.
_RECORD_JOB = text(
    'INSERT INTO usage_intervals(launch_id, number, project, "user", simulation_id, kind, labels, executor, workers,'
    " millicores, mebibytes, gpus, until_at, milliseconds, open)"
    f" SELECT :attempt, 1, project, owner, simulation, '{UsageKind.JOB}', labels, '{JOBS}', 1, 1000, 0, 0,"
    " CAST(:now AS DOUBLE PRECISION), CAST(:milliseconds AS BIGINT), 0 FROM ("
    " SELECT project, submitted_by AS owner, id AS simulation, labels FROM simulations WHERE id=:id"
    " UNION ALL SELECT project, submitted_by, '', labels FROM comparisons WHERE id=:id"
    " UNION ALL SELECT project, submitted_by, '', labels FROM pipelines WHERE id=:id"
    " UNION ALL SELECT project, made_by, '', '{}' FROM dataset_versions WHERE id=:id"
    " UNION ALL SELECT project, made_by, '', '{}' FROM model_imports WHERE id=:id) AS owners"
)
_ROW = select(*columns_of(usage_intervals, IntervalRow))
_CURRENT = _ROW.where(usage_intervals.c.launch_id == bindparam("launch"), usage_intervals.c.open == 1).with_for_update()
_INSERT = insert(usage_intervals)
_WARM = _ROW.where(
    usage_intervals.c.kind == UsageKind.WARM.value,
    usage_intervals.c.open == 1,
    usage_intervals.c.executor == bindparam("executor"),
).with_for_update()
_WARM_OF_OTHERS = _ROW.where(
    usage_intervals.c.kind == UsageKind.WARM.value,
    usage_intervals.c.open == 1,
    usage_intervals.c.executor.not_in(bindparam("executors", expanding=True)),
).with_for_update()
#: A row for a warm runner that waits, unless its launch has begun: what shows it may be older.
_OPEN_WARM = text(
    'INSERT INTO usage_intervals(launch_id, number, project, "user", simulation_id, kind, labels, executor, workers,'
    " millicores, mebibytes, gpus, until_at)"
    f" SELECT :id, 1, :project, '', '', '{UsageKind.WARM}', '{{}}', :executor, CAST(:workers AS INTEGER),"
    " CAST(:millicores AS BIGINT), CAST(:mebibytes AS BIGINT), CAST(:gpus AS BIGINT),"
    " CAST(:now AS DOUBLE PRECISION) WHERE NOT EXISTS (SELECT 1 FROM usage_intervals WHERE launch_id=:id)"
)
_CLOSE = text(
    "UPDATE usage_intervals SET until_at=:until, milliseconds=:milliseconds, estimated=:estimated, lost=:lost, open=0"
    " WHERE launch_id=:launch AND number=:number"
)
_LOSE = text(
    "UPDATE usage_intervals SET lost=1 WHERE launch_id=:launch AND until_at-milliseconds/1000.0>=:since AND open=0"
)
#: When a runner of a launch said something last.
_LAST_HEARTBEAT = text(
    "SELECT max(r.heartbeat_at) FROM ranges r JOIN stages t ON t.id=r.stage_id"
    " WHERE t.simulation_id=:simulation AND r.launch_id=:launch AND r.state='leased'"
)
#: When results of a launch were seen to have arrived last; its simulation has no other launch meanwhile.
_BROUGHT = text(
    "SELECT max(e.at) FROM events e JOIN launches l ON l.simulation_id=e.simulation_id"
    " WHERE l.id=:launch AND e.type='progress' AND e.at>=l.created_at"
)
#: Milliseconds since the last mark: by the database's clock, unless that was set meanwhile; then by the dispatcher's.
_SINCE = (
    "CASE WHEN CAST(:most AS DOUBLE PRECISION)<0 OR (:now-until_at>=0 AND :now-until_at<=:most)"
    " THEN CASE WHEN :now>until_at THEN CAST(round((:now-until_at)*1000) AS BIGINT) ELSE 0 END"
    " WHEN milliseconds=0 THEN 0 ELSE CAST(round(CAST(:elapsed AS DOUBLE PRECISION)*1000) AS BIGINT) END"
)
_MARK = text(
    f"UPDATE usage_intervals SET milliseconds=milliseconds+{_SINCE},"
    " until_at=CAST(:now AS DOUBLE PRECISION) WHERE open=1 AND launch_id IN :ids"
).bindparams(bindparam("ids", expanding=True))
_AWAIT = text(
    "UPDATE usage_intervals SET until_at=:now WHERE open=1 AND milliseconds=0 AND launch_id IN :ids"
).bindparams(bindparam("ids", expanding=True))
#: Seconds by which the database's clock and the dispatcher's may differ between two marks.
TOLERANCE = 1.0


def begin(c: Connection, id: str, now: float, launch: Mapping[str, object], granted: GrantedResources) -> None:
    """Open the first interval of a launch, as its row is inserted; if it was a warm runner, it waits no longer."""
    number = 1
    if (row := _current(c, id)) is not None:
        number = row.number + _end_warm(c, row, now)
    c.execute(_OPEN, {**launch, "id": id, "created_at": now, "number": number, **asdict(granted)})


def mark(c: Connection, launches: Collection[str], now: float, elapsed: float | None) -> int:
    """Record that launches were still there, and return of how many there is an interval.

    ``elapsed``: seconds since they were marked last, if that is known.
    """
    if not launches:
        return 0
    most = -1.0 if elapsed is None else elapsed + TOLERANCE
    return c.execute(_MARK, {"now": now, "most": most, "elapsed": elapsed or 0.0, "ids": sorted(launches)}).rowcount


def keep_warm(c: Connection, executor: str, grants: Collection[WarmGrant], now: float, elapsed: float | None) -> None:
    """Record which warm runners wait on an executor: begin, mark and end their intervals.

    ``elapsed``: seconds since they were recorded last, if that is known; else the end of one was not seen.
    """
    rows = {row.launch_id: row for row in read_rows(c.execute(_WARM, {"executor": executor}), IntervalRow)}
    present = {grant.id: grant for grant in grants}
    mark(c, rows.keys() & present.keys(), now, elapsed)
    for id, row in rows.items():
        if id not in present:
            _end_warm(c, row, now, seen=elapsed is not None)
        elif row.granted != present[id].granted:
            _continue(c, row, parts_of(_open_interval(row), IntervalEnd(now, now)), present[id].granted)
    for id in present.keys() - rows.keys():
        grant = present[id]
        values = {"id": id, "project": grant.project, "executor": executor, "now": now}
        c.execute(_OPEN_WARM, {**values, **asdict(grant.granted)})


def end_warm_of_others(c: Connection, executors: Collection[str], now: float) -> None:
    """End the intervals of warm runners on executors that are no longer configured."""
    for row in read_rows(c.execute(_WARM_OF_OTHERS, {"executors": sorted(executors)}), IntervalRow):
        _end_warm(c, row, now, seen=False)


def wait(c: Connection, launches: Collection[str], now: float) -> None:
    """Record that launches have been granted nothing so far: they are in a queue of their cluster."""
    if launches:
        c.execute(_AWAIT, {"now": now, "ids": sorted(launches)})


def resize(c: Connection, launch: str, workers: int, now: float) -> None:
    """End the interval of a launch and begin the next at the same moment, with other workers."""
    row = _current(c, launch)
    if row is None or row.workers == workers:
        return
    _continue(c, row, parts_of(_open_interval(row), IntervalEnd(now)), replace(row.granted, workers=workers))


def end(c: Connection, launch: str, simulation: str, now: float, *, lost: bool) -> None:
    """End the interval of a launch; ``lost``: the platform repeats its work, so that what it brought last counts."""
    row = _current(c, launch)
    if row is None:
        return
    heard_at = c.scalar(_LAST_HEARTBEAT, {"launch": launch, "simulation": simulation}) or 0.0
    result_at = c.scalar(_BROUGHT, {"launch": launch}) if lost else None
    _close(c, row, parts_of(_open_interval(row), IntervalEnd(now, heard_at, lost, result_at)))
    if lost:
        c.execute(_LOSE, {"launch": launch, "since": result_at or 0.0})


def record_job(c: Connection, attempt: str, id: str, milliseconds: int, now: float) -> None:
    """Store how long an attempt of a job on a row has worked, if the row is still there."""
    c.execute(_RECORD_JOB, {"attempt": attempt, "id": id, "milliseconds": milliseconds, "now": now})


def _current(c: Connection, launch: str) -> IntervalRow | None:
    return read_row(c.execute(_CURRENT, {"launch": launch}).first(), IntervalRow)


def _open_interval(row: IntervalRow) -> OpenInterval:
    return OpenInterval(row.until_at, row.milliseconds)


def _close(c: Connection, row: IntervalRow, parts: Collection[IntervalPart]) -> None:
    for number, part in enumerate(parts, row.number):
        values = {"milliseconds": part.milliseconds, "estimated": int(part.estimated), "lost": int(part.lost)}
        if number == row.number:
            c.execute(_CLOSE, {**values, "until": part.until, "launch": row.launch_id, "number": number})
        else:
            _insert(c, row, {**values, "number": number, "until_at": part.until, "open": 0})


def _continue(c: Connection, row: IntervalRow, parts: Sequence[IntervalPart], granted: GrantedResources) -> None:
    """End an interval and begin the next at the same moment, with other resources."""
    _close(c, row, parts)
    following = {"number": row.number + len(parts), "until_at": parts[-1].until, **asdict(granted)}
    _insert(c, row, following | {"milliseconds": 0, "open": 1})


def _end_warm(c: Connection, row: IntervalRow, now: float, *, seen: bool = True) -> int:
    """End the interval of a warm runner and return its number of parts; ``seen``: it has waited until now."""
    parts = parts_of(_open_interval(row), IntervalEnd(now, now if seen else 0.0))
    _close(c, row, parts)
    return len(parts)


def _insert(c: Connection, row: IntervalRow, changes: Mapping[str, object]) -> None:
    values = {name: getattr(row, name) for name in row.__struct_fields__}
    c.execute(_INSERT, {**values, **changes})
