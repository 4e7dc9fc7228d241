"""Leases in SQL: rows of `ranges` partition [0, next) of a stage; they are split, never merged, never deleted early.

Every decision is one UPDATE whose WHERE names what it believes, so that READ COMMITTED is enough. A new row is made of
an open one, in the transaction that changes that one. Hot statements are constants: building them per call costs three
to four times as much.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import asdict
from sqlalchemy import Connection, bindparam, insert, text

from core.domain.scheduling.ranges import (
    STRIKES,
    Lease,
    RangePosition,
    RangeState,
    ReportDecision,
    ReportedRange,
    aligned,
    cut,
    decide_report,
    patience,
    share,
)
from core.store.rows import StoredRow
from core.store.tables import ranges

#: Seconds between two reports of a worker at work.
FLUSH = 1.0
#: Ids per query.
PAGE = 500

_STAGE = text(
    "SELECT id, total, next, align FROM stages WHERE simulation_id=:i AND state='open' ORDER BY ordinal LIMIT 1"
)
_PENDING = (
    "SELECT start, stop, cursor, careful FROM ranges WHERE stage_id=:s AND state='pending' AND strikes<:strikes"
    " ORDER BY start LIMIT 1"
)
_RETURNED = {"sqlite": text(_PENDING), "postgresql": text(_PENDING + " FOR UPDATE SKIP LOCKED")}
_TAKE = text(
    "UPDATE ranges SET stop=:cut, state='leased', fencing_token=:f, launch_id=:l, worker=:w, ttl=:ttl,"
    " heartbeat_at=:now, moved_at=:now, rate=:rate, task=-1, cuts=0, speculative=0"
    " WHERE stage_id=:s AND start=:start AND state='pending' AND stop=:stop RETURNING start"
)
_FRESH = text(
    "UPDATE stages SET prev=next, next=CASE WHEN next+:n<total THEN next+:n ELSE total END"
    " WHERE id=:s AND state='open' AND next<total RETURNING prev, next"
)
_INSERT_LEASE = text(
    "INSERT INTO ranges(stage_id, start, stop, cursor, state, fencing_token, launch_id, worker, ttl, heartbeat_at,"
    " moved_at, rate, careful)"
    " VALUES(:s, :start, :stop, :start, :state, :f, :l, :w, :ttl, :now, :now, :rate, :careful)"
)
_VICTIMS = text(
    "SELECT start, stop, cursor, fencing_token, rate FROM ranges"
    " WHERE stage_id=:s AND state='leased' AND cuts=0 AND careful<cursor"
    " ORDER BY (stop-cursor) / coalesce(nullif(rate, 0), 1.0) DESC, start LIMIT 1"  # by seconds of work
)
_STEAL = text(
    "UPDATE ranges SET stop=:mid, cuts=cuts+1 WHERE stage_id=:s AND start=:start AND fencing_token=:f"
    " AND stop=:stop AND cursor<:mid"  # the victim keeps a task, whose report finds the range at its end
    " AND cuts=0 AND state='leased' RETURNING start"
)
_STRAGGLERS = text(
    "SELECT start, stop, cursor, fencing_token, rate, moved_at FROM ranges"
    " WHERE stage_id=:s AND state='leased' AND speculative=0"
    " AND careful<cursor AND NOT (launch_id=:l AND worker=:w) ORDER BY moved_at, start LIMIT 1"
)
_SPECULATE = text(
    "UPDATE ranges SET speculative=1 WHERE stage_id=:s AND start=:start AND fencing_token=:f AND cursor=:cursor"
    " AND speculative=0 AND state='leased' RETURNING stop"
)
_REPORT = text(
    "UPDATE ranges SET cursor=:to, heartbeat_at=:now, moved_at=:now, rate=:rate, strikes=0, expiries=0, cuts=0,"
    " speculative=0, state=CASE WHEN stop=:to THEN 'done' ELSE 'leased' END"
    " WHERE stage_id=:s AND start=:start AND fencing_token=:f AND cursor=:from AND stop>=:to AND state='leased'"
    " AND EXISTS(SELECT 1 FROM stages WHERE id=:s AND state='open') RETURNING stop"
)
_STATE = text(
    "SELECT CASE WHEN r.state='leased' AND t.state<>'open' THEN 'closed' ELSE r.state END AS state, r.fencing_token,"
    " r.cursor, r.stop FROM ranges r JOIN stages t ON t.id=r.stage_id WHERE r.stage_id=:s AND r.start=:start"
)
_SEGMENT = text(
    'INSERT INTO segments(stage_id, start, stop, object, "offset", bytes, crc32, failed, sketch)'
    " VALUES(:s, :start, :stop, :object, :offset, :bytes, :crc32, :failed, :sketch)"
)
_HEARTBEAT = text(
    "UPDATE ranges SET heartbeat_at=:now, task=:task WHERE stage_id=:s AND start=:start AND fencing_token=:f"
    " AND state='leased' RETURNING cursor, stop"
)
_HELD = text(
    "SELECT cursor, stop, careful, strikes, expiries, death, task FROM ranges WHERE stage_id=:s AND start=:start"
    " AND fencing_token=:f AND state='leased'"
)
_RETURN_ALL = text(
    "UPDATE ranges SET state='pending', fencing_token=NULL, launch_id=NULL, worker=NULL, careful=:careful,"
    " strikes=:strikes, expiries=:expiries, death=:death, cuts=0, speculative=0"
    " WHERE stage_id=:s AND start=:start AND fencing_token=:f AND cursor=:cursor AND stop=:stop AND state='leased'"
    " RETURNING start"
)
_RETURN_DONE = text(
    "UPDATE ranges SET stop=cursor, state='done' WHERE stage_id=:s AND start=:start AND fencing_token=:f"
    " AND cursor=:cursor AND stop=:stop AND state='leased' RETURNING start"
)
_RETURN_REST = text(
    "INSERT INTO ranges(stage_id, start, stop, cursor, state, careful, strikes, expiries, death)"
    " VALUES(:s, :cursor, :stop, :cursor, 'pending', :careful, :strikes, :expiries, :death)"
)
_POISONED = text(
    "SELECT r.stage_id AS stage, r.start, r.stop, r.death FROM ranges r JOIN stages t ON t.id=r.stage_id"
    " WHERE t.state='open' AND r.state='pending' AND r.strikes>0 AND r.strikes>=:strikes"  # >0: the index's condition
)
_SETTLE = text(
    "UPDATE ranges SET cursor=start+1, stop=start+1, state='done' WHERE stage_id=:s AND start=:start AND stop=:stop"
    " AND state='pending' AND strikes>=:strikes RETURNING start"
)
_EXPIRED = text(
    "SELECT r.stage_id, r.start, r.fencing_token FROM ranges r JOIN stages t ON t.id=r.stage_id"
    " WHERE t.state='open' AND r.state='leased' AND r.heartbeat_at + r.ttl < :now"
)
_HEARTBEATING = text(
    "SELECT 1 FROM ranges WHERE launch_id=:l AND heartbeat_at + ttl >= :now AND stage_id IN"
    " (SELECT id FROM stages WHERE simulation_id=:i) LIMIT 1"
)
_OF_LAUNCH = text(
    "SELECT r.stage_id, r.start, r.fencing_token FROM ranges r JOIN stages t ON t.id=r.stage_id"
    " WHERE t.simulation_id=:i AND r.state='leased' AND r.launch_id=:l"
)
_UNFINISHED = text(
    "SELECT simulation_id FROM stages WHERE simulation_id IN :ids AND state='open' AND (next<total"
    " OR EXISTS(SELECT 1 FROM ranges WHERE stage_id=stages.id AND state<>'done'))"
).bindparams(bindparam("ids", expanding=True))
_CLOSE = text(
    "UPDATE stages SET state='done' WHERE id=:s AND state='open' AND next=total"
    " AND NOT EXISTS(SELECT 1 FROM ranges WHERE stage_id=:s AND state<>'done') RETURNING id"
)
_CLOSE_STAGES = text("UPDATE stages SET state='closed' WHERE simulation_id=:i AND state='open'")
_CLOSE_RANGES = text(
    "UPDATE ranges SET state='closed' WHERE state IN ('pending', 'leased')"
    " AND stage_id IN (SELECT id FROM stages WHERE simulation_id=:i)"
)
_LEFT_OPEN = text(
    "SELECT 1 FROM ranges WHERE state IN ('pending', 'leased')"
    " AND stage_id IN (SELECT id FROM stages WHERE simulation_id=:i) LIMIT 1"
)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a simulation: ``total`` tasks, of which [0, next) have been cut into ranges."""

    id: str
    total: int
    next: int
    align: int


@dataclass(frozen=True, slots=True)
class LeasingWorker:
    """The worker that asks for a lease. ``rate``: tasks per second, once measured; ``workers``: total of the launch."""

    launch: str
    name: str
    rate: float | None
    workers: int
    ttl: float


class Segment(StoredRow, frozen=True, gc=False):
    """Location of the result lines of tasks [start, stop) in an object."""

    start: int
    stop: int
    object: str
    offset: int
    bytes: int
    crc32: int
    failed: int
    sketch: str | None = None


def open_stage(c: Connection, simulation: str) -> Stage | None:
    """Return the stage that has work, or None."""
    row = c.execute(_STAGE, {"i": simulation}).first()
    return Stage(*row) if row else None


def lend(c: Connection, stage: Stage, worker: LeasingWorker, now: float) -> Lease | None:
    """Lease a released range, else fresh work, else half of the longest lease, else a speculative lease; else None."""
    return (
        _lend_returned(c, stage, worker, now)
        or _lend_fresh(c, stage, worker, now)
        or _steal(c, stage, worker, now)
        or _speculate(c, stage, worker, now)
    )


def _lend_returned(c: Connection, stage: Stage, worker: LeasingWorker, now: float) -> Lease | None:
    row = c.execute(_RETURNED[c.dialect.name], {"s": stage.id, "strikes": STRIKES}).first()
    if row is None:
        return None
    start, stop, cursor, careful = row
    size = share(stop - cursor, worker.workers, worker.rate)
    middle = min(stop, aligned(cursor + size, stage.align))
    fencing_token = secrets.token_hex(8)
    taken = _holder(worker, now) | {"s": stage.id, "start": start, "stop": stop, "cut": middle, "f": fencing_token}
    if c.execute(_TAKE, taken).first() is None:
        return None
    if middle < stop:  # the rest stays returned; it is suspect only if the suspected task lies in it
        rest = {"s": stage.id, "cursor": middle, "stop": stop, "careful": careful if careful >= middle else -1}
        c.execute(_RETURN_REST, rest | {"strikes": 0, "expiries": 0, "death": None})
    return Lease(
        stage=stage.id,
        start=start,
        cursor=cursor,
        stop=middle,
        fencing_token=fencing_token,
        ttl=worker.ttl,
        careful=careful,
    )


def _lend_fresh(c: Connection, stage: Stage, worker: LeasingWorker, now: float) -> Lease | None:
    if stage.next >= stage.total:
        return None
    size = share(stage.total - stage.next, worker.workers, worker.rate, stage.align)
    row = c.execute(_FRESH, {"s": stage.id, "n": size}).first()
    return _insert_lease(c, stage, worker, now, row.prev, row.next) if row else None


def _steal(c: Connection, stage: Stage, worker: LeasingWorker, now: float) -> Lease | None:
    victim = c.execute(_VICTIMS, {"s": stage.id}).first()
    if victim is None:
        return None
    middle = cut(victim.cursor, victim.stop, victim.rate, FLUSH, stage.align)
    if middle is None:
        return None
    named = {"s": stage.id, "start": victim.start, "f": victim.fencing_token, "stop": victim.stop, "mid": middle}
    if c.execute(_STEAL, named).first() is None:
        return None
    return _insert_lease(c, stage, worker, now, middle, victim.stop)


def _speculate(c: Connection, stage: Stage, worker: LeasingWorker, now: float) -> Lease | None:
    slow = c.execute(_STRAGGLERS, {"s": stage.id, "l": worker.launch, "w": worker.name}).first()
    if slow is None or now - slow.moved_at < patience(slow.rate):
        return None
    named = {"s": stage.id, "start": slow.start, "f": slow.fencing_token, "cursor": slow.cursor}
    row = c.execute(_SPECULATE, named).first()
    return (
        Lease(
            stage=stage.id,
            start=slow.start,
            cursor=slow.cursor,
            stop=row.stop,
            fencing_token=slow.fencing_token,
            ttl=worker.ttl,
        )
        if row
        else None
    )


def _insert_lease(c: Connection, stage: Stage, worker: LeasingWorker, now: float, start: int, stop: int) -> Lease:
    fencing_token = secrets.token_hex(8)
    place = {"s": stage.id, "start": start, "stop": stop, "state": "leased", "f": fencing_token, "careful": -1}
    c.execute(_INSERT_LEASE, _holder(worker, now) | place)
    return Lease(stage=stage.id, start=start, cursor=start, stop=stop, fencing_token=fencing_token, ttl=worker.ttl)


def _holder(worker: LeasingWorker, now: float) -> dict[str, object]:
    return {"l": worker.launch, "w": worker.name, "ttl": worker.ttl, "rate": worker.rate, "now": now}


def advance(c: Connection, report: ReportedRange, rate: float | None, now: float) -> ReportDecision:
    """Move the cursor as far as a report counts, by ``decide_report``; return the decision that was carried out."""
    # Nearly every report counts in full, so the first attempt believes the reporter and costs one statement. Each
    # failed attempt means that another transaction moved the cursor or the end, which happens finitely often.
    current: RangeState | None = RangeState("leased", report.fencing_token, RangePosition(report.since, report.to))
    while (decision := decide_report(current, report)).end is not None:
        claim = {"s": report.stage, "start": report.start, "f": report.fencing_token, "from": report.since}
        row = c.execute(_REPORT, claim | {"to": decision.end, "rate": rate, "now": now}).first()
        if row is not None:
            return ReportDecision(decision.end, RangePosition(decision.end, row.stop))
        current = range_state(c, report.stage, report.start)
    return decision


def range_state(c: Connection, stage: str, start: int) -> RangeState | None:
    """Return the range that begins at ``start`` as it stands, or None."""
    row = c.execute(_STATE, {"s": stage, "start": start}).first()
    return RangeState(row.state, row.fencing_token, RangePosition(row.cursor, row.stop)) if row else None


def record(c: Connection, stage: str, segment: Segment) -> None:
    """Add a segment's row; its object is durable already."""
    c.execute(_SEGMENT, {"s": stage, **asdict(segment)})


def heartbeat(c: Connection, stage: str, start: int, fencing_token: str, task: int, now: float) -> RangePosition | None:
    """Keep a lease alive and note the task at work; None if it is lost. A heartbeat never moves the cursor."""
    row = c.execute(_HEARTBEAT, {"s": stage, "start": start, "f": fencing_token, "task": task, "now": now}).first()
    return RangePosition(row.cursor, row.stop) if row else None


@dataclass(frozen=True, slots=True)
class Remainder:
    """The released remainder of a lease: strikes against the task at ``cursor``, expiries of the range."""

    cursor: int
    stop: int
    strikes: int
    expiries: int


def release(
    c: Connection,
    stage: str,
    start: int,
    fencing_token: str,
    *,
    task: int = -1,
    death: str | None = None,
    blame: bool = True,
) -> Remainder | None:
    """Release the remainder of a lease whose worker is gone, careful up to the task it last announced.

    The task at the cursor is not the suspect once results are batched; so only a witnessed death in careful mode is a
    strike. Without a witness it is an expiry. What the platform ended itself (``blame`` false) counts as nothing.
    ``death``: why the worker died, as the witness says; None without one.
    """
    held = {"s": stage, "start": start, "f": fencing_token}
    # Each failed attempt means that another transaction moved the cursor, or stole the end.
    while (row := c.execute(_HELD, held).first()) is not None:
        announced = max(task, row.task)
        suspect = announced if row.cursor <= announced < row.stop else row.cursor
        was_careful = row.careful >= row.cursor
        strikes = row.strikes + (1 if death is not None and blame and was_careful else 0)
        expiries = row.expiries + (1 if death is None and blame else 0)
        back = held | {"cursor": row.cursor, "stop": row.stop, "strikes": strikes, "expiries": expiries}
        back["careful"] = max(suspect, row.careful) if blame else row.careful
        back["death"] = row.death if death is None else death
        returned = _RETURN_ALL if row.cursor == start else _RETURN_DONE
        if c.execute(returned, back).first() is None:
            continue
        # An earlier version could cut a range at its cursor: of such a range nothing is left.
        if returned is _RETURN_DONE and row.cursor < row.stop:
            c.execute(_RETURN_REST, back)
        return Remainder(row.cursor, row.stop, strikes, expiries)
    return None


@dataclass(frozen=True, slots=True)
class PoisonedRange:
    """A pending range whose first task took its last strike, and why the last worker died; it is never leased."""

    stage: str
    start: int
    stop: int
    death: str | None


def poisoned(c: Connection) -> list[PoisonedRange]:
    """Return the poisoned ranges of open stages."""
    return [PoisonedRange(*row) for row in c.execute(_POISONED, {"strikes": STRIKES})]


def settle(c: Connection, stage: str, stop: int, segment: Segment) -> bool:
    """Give the first task of a poisoned range the result in ``segment``, and the rest a fresh start."""
    named = {"s": stage, "start": segment.start, "stop": stop, "strikes": STRIKES}
    if c.execute(_SETTLE, named).first() is None:
        return False
    record(c, stage, segment)
    if segment.stop < stop:
        rest = {"s": stage, "cursor": segment.stop, "stop": stop, "careful": -1, "strikes": 0, "expiries": 0}
        c.execute(_RETURN_REST, rest | {"death": None})
    return True


def expired(c: Connection, now: float) -> list[tuple[str, int, str]]:
    """Return (stage, start, fencing token) of leases without a heartbeat within their time to live."""
    return [(row.stage_id, row.start, row.fencing_token) for row in c.execute(_EXPIRED, {"now": now})]


def of_launch(c: Connection, simulation: str, launch: str) -> list[tuple[str, int, str]]:
    """Return (stage, start, fencing token) of a launch's leases."""
    return [
        (row.stage_id, row.start, row.fencing_token) for row in c.execute(_OF_LAUNCH, {"i": simulation, "l": launch})
    ]


def heartbeating(c: Connection, simulation: str, launch: str, now: float) -> bool:
    """Return whether a launch has a live lease, or has just finished one."""
    return c.execute(_HEARTBEATING, {"i": simulation, "l": launch, "now": now}).first() is not None


def unfinished(c: Connection, simulations: Sequence[str]) -> set[str]:
    """Return those of these simulations that have an open stage with tasks without a result."""
    found: set[str] = set()
    for at in range(0, len(simulations), PAGE):
        found.update(c.scalars(_UNFINISHED, {"ids": simulations[at : at + PAGE]}))
    return found


def close(c: Connection, stage: str) -> bool:
    """Close a stage that is done. The dispatcher alone does this: two last reporters do not see each other."""
    return c.execute(_CLOSE, {"s": stage}).first() is not None


def close_early(c: Connection, simulation: str) -> None:
    """Close all that is open: written on the ranges themselves, for those rows are what a report compares.

    An UPDATE that waits for a thief, or for a release, does not see the range that this one inserts; so it is repeated
    until a new look finds nothing open. What inserts a range later has to change an open one first, which it finds
    closed.
    """
    c.execute(_CLOSE_STAGES, {"i": simulation})
    while c.execute(_LEFT_OPEN, {"i": simulation}).first() is not None:
        c.execute(_CLOSE_RANGES, {"i": simulation})


def simulation_of(c: Connection, stage: str) -> str:
    """Return the id of a stage's simulation."""
    return str(c.scalar(text("SELECT simulation_id FROM stages WHERE id=:s"), {"s": stage}))


def lay(c: Connection, stage: str, start: int, stop: int, *, done: bool) -> None:
    """Insert a range of a new stage: done already, or to be done."""
    cursor, state = (stop, "done") if done else (start, "pending")
    c.execute(insert(ranges).values(stage_id=stage, start=start, stop=stop, cursor=cursor, state=state))


def all_cut(c: Connection, stage: str) -> None:
    """Mark a new stage as completely cut into ranges: it has no fresh work."""
    c.execute(text("UPDATE stages SET next=total WHERE id=:s"), {"s": stage})
