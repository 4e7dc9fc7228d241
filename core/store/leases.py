"""Leases in SQL: rows of `ranges` partition [0, next) of a stage; they are split, never merged, never deleted early.

Every decision is one UPDATE whose WHERE names what it believes, so that READ COMMITTED is enough. Hot statements are
constants: building them per call costs three to four times as much.
"""

import secrets
from dataclasses import dataclass

from sqlalchemy import Connection, insert, text

from core.domain.ranges import STRIKES, Lease, aligned, cut, patience, share
from core.store.tables import ranges

#: Seconds between two reports of a driver at work.
FLUSH = 1.0

_STAGE = text(
    "SELECT id, total, next, align FROM stages WHERE simulation_id=:i AND state='open' ORDER BY ordinal LIMIT 1"
)
_PENDING = (
    "SELECT start, stop, mark, careful FROM ranges WHERE stage_id=:s AND state='pending' AND strikes<:strikes"
    " ORDER BY start LIMIT 1"
)
_RETURNED = {"sqlite": text(_PENDING), "postgresql": text(_PENDING + " FOR UPDATE SKIP LOCKED")}
_TAKE = text(
    "UPDATE ranges SET stop=:cut, state='leased', fence=:f, launch_id=:l, driver=:d, ttl=:ttl, beat_at=:now,"
    " moved_at=:now,"
    " rate=:rate, task=-1, cuts=0, twins=0 WHERE stage_id=:s AND start=:start AND state='pending'"
    " AND stop=:stop RETURNING start"
)
_FRESH = text(
    "UPDATE stages SET prev=next, next=CASE WHEN next+:n<total THEN next+:n ELSE total END"
    " WHERE id=:s AND state='open' AND next<total RETURNING prev, next"
)
_BORN = text(
    "INSERT INTO ranges(stage_id, start, stop, mark, state, fence, launch_id, driver, ttl, beat_at, moved_at,"
    " rate, careful)"
    " VALUES(:s, :start, :stop, :start, :state, :f, :l, :d, :ttl, :now, :now, :rate, :careful)"
)
_VICTIMS = text(
    "SELECT start, stop, mark, fence, rate FROM ranges WHERE stage_id=:s AND state='leased' AND cuts=0 AND careful<mark"
    " ORDER BY (stop-mark) / coalesce(nullif(rate, 0), 1.0) DESC LIMIT 1"  # by seconds of work, not by tasks
)
_STEAL = text(
    "UPDATE ranges SET stop=:mid, cuts=cuts+1 WHERE stage_id=:s AND start=:start AND fence=:f"
    " AND stop=:stop AND mark<=:mid"
    " AND cuts=0 AND state='leased' RETURNING start"
)
_STRAGGLERS = text(
    "SELECT start, stop, mark, fence, rate, moved_at FROM ranges WHERE stage_id=:s AND state='leased' AND twins=0"
    " AND careful<mark AND NOT (launch_id=:l AND driver=:d) ORDER BY moved_at LIMIT 1"
)
_TWIN = text(
    "UPDATE ranges SET twins=1 WHERE stage_id=:s AND start=:start AND fence=:f AND mark=:mark AND twins=0"
    " AND state='leased' RETURNING stop"
)
_REPORT = text(
    "UPDATE ranges SET mark=:to, beat_at=:now, moved_at=:now, rate=:rate, strikes=0, silences=0, cuts=0, twins=0,"
    " state=CASE WHEN stop=:to THEN 'done' ELSE 'leased' END"
    " WHERE stage_id=:s AND start=:start AND fence=:f AND mark=:from AND stop>=:to AND state='leased' RETURNING stop"
)
_LOOK = text("SELECT mark, stop, state FROM ranges WHERE stage_id=:s AND start=:start AND fence=:f")
_SEGMENT = text(
    'INSERT INTO segments(stage_id, start, stop, object, "offset", bytes, crc32, failed, sketch)'
    " VALUES(:s, :start, :stop, :object, :offset, :bytes, :crc32, :failed, :sketch)"
)
_BEAT = text(
    "UPDATE ranges SET beat_at=:now, task=:task WHERE stage_id=:s AND start=:start AND fence=:f"
    " AND state='leased' RETURNING mark, stop"
)
_HELD = text(
    "SELECT mark, stop, careful, strikes, silences, task FROM ranges WHERE stage_id=:s AND start=:start"
    " AND fence=:f AND state='leased'"
)
_RETURN_ALL = text(
    "UPDATE ranges SET state='pending', fence=NULL, launch_id=NULL, driver=NULL, careful=:careful,"
    " strikes=:strikes, silences=:silences,"
    " cuts=0, twins=0 WHERE stage_id=:s AND start=:start AND fence=:f AND mark=:mark AND state='leased' RETURNING start"
)
_RETURN_DONE = text(
    "UPDATE ranges SET stop=mark, state='done' WHERE stage_id=:s AND start=:start AND fence=:f"
    " AND mark=:mark AND state='leased' RETURNING start"
)
_RETURN_REST = text(
    "INSERT INTO ranges(stage_id, start, stop, mark, state, careful, strikes, silences)"
    " VALUES(:s, :mark, :stop, :mark, 'pending', :careful, :strikes, :silences)"
)
_CONDEMNED = text(
    "SELECT r.stage_id, r.start, r.stop FROM ranges r JOIN stages t ON t.id=r.stage_id"
    " WHERE t.state='open' AND r.state='pending' AND r.strikes>=:strikes"
)
_SETTLE = text(
    "UPDATE ranges SET mark=start+1, stop=start+1, state='done' WHERE stage_id=:s AND start=:start AND stop=:stop"
    " AND state='pending' AND strikes>=:strikes RETURNING start"
)
_LAPSED = text(
    "SELECT r.stage_id, r.start, r.fence FROM ranges r JOIN stages t ON t.id=r.stage_id"
    " WHERE t.state='open' AND r.state='leased' AND r.beat_at + r.ttl < :now"
)
_BEATING = text(
    "SELECT 1 FROM ranges WHERE launch_id=:l AND beat_at + ttl >= :now AND stage_id IN"
    " (SELECT id FROM stages WHERE simulation_id=:i) LIMIT 1"
)
_OF_LAUNCH = text(
    "SELECT r.stage_id, r.start, r.fence FROM ranges r JOIN stages t ON t.id=r.stage_id"
    " WHERE t.simulation_id=:i AND r.state='leased' AND r.launch_id=:l"
)
_CLOSE = text(
    "UPDATE stages SET state='done' WHERE id=:s AND state='open' AND next=total"
    " AND NOT EXISTS(SELECT 1 FROM ranges WHERE stage_id=:s AND state<>'done') RETURNING id"
)
_CLOSE_STAGES = text("UPDATE stages SET state='closed' WHERE simulation_id=:i AND state='open'")
_CLOSE_RANGES = text(
    "UPDATE ranges SET state='closed' WHERE state IN ('pending', 'leased')"
    " AND stage_id IN (SELECT id FROM stages WHERE simulation_id=:i)"
)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a simulation: ``total`` tasks, of which [0, next) have been cut into ranges."""

    id: str
    total: int
    next: int
    align: int


@dataclass(frozen=True, slots=True)
class Driver:
    """Who asks: an evaluator and its runner. ``rate``: tasks a second, once known; ``peers``: on the stage in all."""

    launch: str
    name: str
    rate: float | None
    peers: int
    ttl: float


@dataclass(frozen=True, slots=True)
class Segment:
    """Where the result lines of [start, stop) lie."""

    start: int
    stop: int
    object: str
    offset: int
    bytes: int
    crc32: int
    failed: int
    sketch: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a range stands: the next task to report and the end, which a thief may have moved."""

    mark: int
    stop: int


def open_stage(c: Connection, simulation: str) -> Stage | None:
    """Return the stage that has work, or None."""
    row = c.execute(_STAGE, {"i": simulation}).first()
    return Stage(*row) if row else None


def lend(c: Connection, stage: Stage, driver: Driver, now: float) -> Lease | None:
    """Lend what was returned, else fresh work, else half of the longest lease, else a straggler's own, or None."""
    return (
        _lend_returned(c, stage, driver, now)
        or _lend_fresh(c, stage, driver, now)
        or _steal(c, stage, driver, now)
        or _twin(c, stage, driver, now)
    )


def _lend_returned(c: Connection, stage: Stage, driver: Driver, now: float) -> Lease | None:
    row = c.execute(_RETURNED[c.dialect.name], {"s": stage.id, "strikes": STRIKES}).first()
    if row is None:
        return None
    start, stop, mark, careful = row
    size = share(stop - mark, driver.peers, driver.rate)
    middle = min(stop, aligned(mark + size, stage.align))
    fence = secrets.token_hex(8)
    taken = _holder(driver, now) | {"s": stage.id, "start": start, "stop": stop, "cut": middle, "f": fence}
    if c.execute(_TAKE, taken).first() is None:
        return None
    if middle < stop:  # the rest stays returned; it is suspect only if the suspected task lies in it
        rest = {"s": stage.id, "mark": middle, "stop": stop, "careful": careful if careful >= middle else -1}
        c.execute(_RETURN_REST, rest | {"strikes": 0, "silences": 0})
    return Lease(stage.id, start, mark, middle, fence, driver.ttl, careful)


def _lend_fresh(c: Connection, stage: Stage, driver: Driver, now: float) -> Lease | None:
    if stage.next >= stage.total:
        return None
    size = share(stage.total - stage.next, driver.peers, driver.rate, stage.align)
    row = c.execute(_FRESH, {"s": stage.id, "n": size}).first()
    return _born(c, stage, driver, now, row.prev, row.next) if row else None


def _steal(c: Connection, stage: Stage, driver: Driver, now: float) -> Lease | None:
    victim = c.execute(_VICTIMS, {"s": stage.id}).first()
    if victim is None:
        return None
    middle = cut(victim.mark, victim.stop, victim.rate, FLUSH, stage.align)
    if middle is None:
        return None
    named = {"s": stage.id, "start": victim.start, "f": victim.fence, "stop": victim.stop, "mid": middle}
    if c.execute(_STEAL, named).first() is None:
        return None
    return _born(c, stage, driver, now, middle, victim.stop)


def _twin(c: Connection, stage: Stage, driver: Driver, now: float) -> Lease | None:
    slow = c.execute(_STRAGGLERS, {"s": stage.id, "l": driver.launch, "d": driver.name}).first()
    if slow is None or now - slow.moved_at < patience(slow.rate):
        return None
    named = {"s": stage.id, "start": slow.start, "f": slow.fence, "mark": slow.mark}
    row = c.execute(_TWIN, named).first()
    return Lease(stage.id, slow.start, slow.mark, row.stop, slow.fence, driver.ttl) if row else None


def _born(c: Connection, stage: Stage, driver: Driver, now: float, start: int, stop: int) -> Lease:
    fence = secrets.token_hex(8)
    place = {"s": stage.id, "start": start, "stop": stop, "state": "leased", "f": fence, "careful": -1}
    c.execute(_BORN, _holder(driver, now) | place)
    return Lease(stage.id, start, start, stop, fence, driver.ttl)


def _holder(driver: Driver, now: float) -> dict[str, object]:
    return {"l": driver.launch, "d": driver.name, "ttl": driver.ttl, "rate": driver.rate, "now": now}


def advance(
    c: Connection, stage: str, start: int, fence: str, since: int, to: int, rate: float | None, now: float
) -> Place | None:
    """Move the mark from ``since`` to ``to`` if it stands there still and the end allows; None if it does not."""
    named = {"s": stage, "start": start, "f": fence, "from": since, "to": to, "rate": rate, "now": now}
    row = c.execute(_REPORT, named).first()
    return Place(to, row.stop) if row else None


def look(c: Connection, stage: str, start: int, fence: str) -> Place | None:
    """Return where the holder of a fence should go on; None if the range is no longer its own."""
    row = c.execute(_LOOK, {"s": stage, "start": start, "f": fence}).first()
    if row is None or row.state not in {"leased", "done"}:
        return None
    return Place(row.mark, row.stop)


def record(c: Connection, stage: str, segment: Segment) -> None:
    """Add a segment's row; its object is durable already."""
    c.execute(
        _SEGMENT,
        {
            "s": stage,
            "start": segment.start,
            "stop": segment.stop,
            "object": segment.object,
            "offset": segment.offset,
            "bytes": segment.bytes,
            "crc32": segment.crc32,
            "failed": segment.failed,
            "sketch": segment.sketch,
        },
    )


def beat(c: Connection, stage: str, start: int, fence: str, task: int, now: float) -> Place | None:
    """Keep a lease alive and note the task at work; None if it is lost. A beat never moves the mark."""
    row = c.execute(_BEAT, {"s": stage, "start": start, "f": fence, "task": task, "now": now}).first()
    return Place(row.mark, row.stop) if row else None


@dataclass(frozen=True, slots=True)
class Return:
    """A remainder that went back: strikes against the task at ``mark``, silences of the range."""

    mark: int
    stop: int
    strikes: int
    silences: int


def give_back(
    c: Connection, stage: str, start: int, fence: str, *, task: int = -1, witness: bool, blame: bool = True
) -> Return | None:
    """Return the remainder of a lease whose driver is gone, careful up to the task it last announced.

    The task at the mark is not the suspect once results are batched; so only a witnessed death in careful mode is a
    strike. Without a witness it is a silence. What the platform ended itself (``blame`` false) counts as nothing.
    """
    held = c.execute(_HELD, {"s": stage, "start": start, "f": fence}).first()
    if held is None:
        return None
    announced = max(task, held.task)
    suspect = announced if held.mark <= announced < held.stop else held.mark
    was_careful = held.careful >= held.mark
    strikes = held.strikes + (1 if witness and blame and was_careful else 0)
    silences = held.silences + (1 if blame and not witness else 0)
    careful = max(suspect, held.careful) if blame else held.careful
    back = {"s": stage, "start": start, "f": fence, "mark": held.mark, "stop": held.stop}
    back |= {"careful": careful, "strikes": strikes, "silences": silences}
    if held.mark == start:
        moved = c.execute(_RETURN_ALL, back).first()
    else:
        moved = c.execute(_RETURN_DONE, back).first()
        if moved is not None:
            c.execute(_RETURN_REST, back)
    return Return(held.mark, held.stop, strikes, silences) if moved is not None else None


def condemned(c: Connection) -> list[tuple[str, int, int]]:
    """Return (stage, start, stop) of returned ranges whose first task took its last strike; nobody is lent them."""
    return [(row.stage_id, row.start, row.stop) for row in c.execute(_CONDEMNED, {"strikes": STRIKES})]


def settle(c: Connection, stage: str, stop: int, segment: Segment) -> bool:
    """Give the first task of a condemned range the result in ``segment``, and the rest a fresh start."""
    named = {"s": stage, "start": segment.start, "stop": stop, "strikes": STRIKES}
    if c.execute(_SETTLE, named).first() is None:
        return False
    record(c, stage, segment)
    if segment.stop < stop:
        rest = {"s": stage, "mark": segment.stop, "stop": stop, "careful": -1, "strikes": 0, "silences": 0}
        c.execute(_RETURN_REST, rest)
    return True


def lapsed(c: Connection, now: float) -> list[tuple[str, int, str]]:
    """Return (stage, start, fence) of leases whose driver has not been heard of for their time to live."""
    return [(row.stage_id, row.start, row.fence) for row in c.execute(_LAPSED, {"now": now})]


def of_launch(c: Connection, simulation: str, launch: str) -> list[tuple[str, int, str]]:
    """Return (stage, start, fence) of what a launch holds."""
    return [(row.stage_id, row.start, row.fence) for row in c.execute(_OF_LAUNCH, {"i": simulation, "l": launch})]


def beating(c: Connection, simulation: str, launch: str, now: float) -> bool:
    """Tell whether a launch holds a lease that lives, or has just finished one."""
    return c.execute(_BEATING, {"i": simulation, "l": launch, "now": now}).first() is not None


def close(c: Connection, stage: str) -> bool:
    """Close a stage that is done. The dispatcher alone does this: two last reporters do not see each other."""
    return c.execute(_CLOSE, {"s": stage}).first() is not None


def close_early(c: Connection, simulation: str) -> None:
    """Close all that is open: written on the ranges themselves, for those rows are what a report compares."""
    c.execute(_CLOSE_STAGES, {"i": simulation})
    c.execute(_CLOSE_RANGES, {"i": simulation})


def simulation_of(c: Connection, stage: str) -> str:
    """Return whose stage it is."""
    return str(c.scalar(text("SELECT simulation_id FROM stages WHERE id=:s"), {"s": stage}))


def lay(c: Connection, stage: str, start: int, stop: int, *, done: bool) -> None:
    """Insert a range of a new stage: done already, or to be done."""
    mark, state = (stop, "done") if done else (start, "pending")
    c.execute(insert(ranges).values(stage_id=stage, start=start, stop=stop, mark=mark, state=state))


def all_cut(c: Connection, stage: str) -> None:
    """Say that a new stage has no fresh work: all of it has been laid out in ranges."""
    c.execute(text("UPDATE stages SET next=total WHERE id=:s"), {"s": stage})
