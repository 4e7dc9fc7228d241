"""Segments, artifacts and logs in SQL: the byte ranges of objects that hold results, by task and by arrival."""

from dataclasses import dataclass

from msgspec.structs import asdict
from sqlalchemy import Connection, bindparam, func, or_, select, text

from common.errors import UnreadableRow
from core.domain.scheduling.states import State
from core.store.database import lock
from core.store.leases import Segment
from core.store.rows import StoredRow, columns_of, read_row, read_rows
from core.store.tables import artifacts, logs, segments


class LogRow(StoredRow, frozen=True, gc=False):
    """A piece of a process's output, in an object of its own."""

    seq: int
    name: str
    object: str


class Artifact(StoredRow, frozen=True, gc=False):
    """A file that a task produced; ``task`` -1: of the whole simulation."""

    task: int
    name: str
    media_type: str
    object: str
    offset: int
    bytes: int
    crc32: int


_COLUMNS = columns_of(segments, Segment)
#: Lock between retries, which add references to objects, and compactions, which move all references and delete objects.
_OBJECTS_LOCK = "objects"
_UNNUMBERED = text("SELECT 1 FROM segments WHERE stage_id=:s AND arrival IS NULL LIMIT 1")
_LOCK = text("UPDATE stages SET prev=prev WHERE id=:s")
_NUMBER = text(
    "UPDATE segments SET arrival=n.k+(SELECT coalesce(max(arrival), 0) FROM segments WHERE stage_id=:s)"
    " FROM (SELECT start, row_number() OVER (ORDER BY start) AS k FROM segments WHERE stage_id=:s"
    " AND arrival IS NULL) AS n"
    " WHERE segments.stage_id=:s AND segments.start=n.start AND segments.arrival IS NULL"
)
_OF_STAGE = segments.c.stage_id == bindparam("s")
_STAGE_IDS = text("SELECT id FROM stages WHERE simulation_id=:i ORDER BY ordinal")
_SEGMENTS = select(*_COLUMNS).where(_OF_STAGE, segments.c.start > bindparam("after"))
_SEGMENTS_IN = _SEGMENTS.order_by(segments.c.start).limit(bindparam("most"))
_SEGMENTS_UPTO = (
    _SEGMENTS.where(segments.c.start < bindparam("upto")).order_by(segments.c.start).limit(bindparam("most"))
)
_COVERING = text("SELECT max(start) FROM segments WHERE stage_id=:s AND start<=:task")
_ARRIVED = (
    select(segments.c.arrival, *_COLUMNS)
    .where(_OF_STAGE, segments.c.arrival > bindparam("after"))
    .order_by(segments.c.arrival)
    .limit(bindparam("most"))
)
_NEWS = text(
    "SELECT s.state, s.reason, EXISTS(SELECT 1 FROM segments WHERE stage_id=:s AND arrival IS NULL) AS unnumbered,"
    " EXISTS(SELECT 1 FROM segments WHERE stage_id=:s AND arrival>:after) AS arrived"
    " FROM simulations s WHERE s.id=:i AND s.deleted_at IS NULL"
)
_SEGMENT_AT = select(*_COLUMNS).where(_OF_STAGE, segments.c.start == bindparam("at"))
_ARTIFACT_COLUMNS = columns_of(artifacts, Artifact)
_ARTIFACTS = (
    select(*_ARTIFACT_COLUMNS)
    .where(
        artifacts.c.simulation_id == bindparam("i"),
        or_(
            artifacts.c.task > bindparam("after"),
            (artifacts.c.task == bindparam("after")) & (artifacts.c.name > bindparam("after_name")),
        ),
    )
    .order_by(artifacts.c.task, artifacts.c.name)
    .limit(bindparam("most"))
)
_LOG_PIECES = (
    select(*columns_of(logs, LogRow))
    .where(logs.c.simulation_id == bindparam("i"), logs.c.seq > bindparam("after"))
    .order_by(logs.c.seq)
    .limit(bindparam("most"))
)
_REPOINT = 'UPDATE {table} SET object=:new, "offset"="offset"+:shift WHERE object=:old'
_REPOINT_SEGMENTS = text(_REPOINT.format(table="segments"))
_REPOINT_ARTIFACTS = text(_REPOINT.format(table="artifacts"))


def stage_ids(c: Connection, simulation: str) -> list[str]:
    """Return the ids of a simulation's stages, in order."""
    return list(c.scalars(_STAGE_IDS, {"i": simulation}))


def newest_stage(c: Connection, simulation: str) -> str:
    """Return the id of a simulation's newest stage. Raise UnreadableRow if the database has none."""
    ids = stage_ids(c, simulation)
    if not ids:
        raise UnreadableRow("The database has no stage of the simulation, so that it cannot be read. Delete it.")
    return ids[-1]


def segments_in(
    c: Connection, stage: str, *, after: int = -1, upto: int | None = None, limit: int = 1000
) -> list[Segment]:
    """Return segments of a stage that start after task ``after``, in task order."""
    values = {"s": stage, "after": after, "most": limit}
    rows = c.execute(_SEGMENTS_IN, values) if upto is None else c.execute(_SEGMENTS_UPTO, values | {"upto": upto})
    return read_rows(rows, Segment)


def segments_of(c: Connection, simulation: str, *, after: int = -1, limit: int = 1000) -> list[Segment]:
    """Return segments of a simulation's last stage that start after task ``after``, in task order."""
    ids = stage_ids(c, simulation)
    return segments_in(c, ids[-1], after=after, limit=limit) if ids else []


def covering(c: Connection, stage: str, task: int) -> int:
    """Return a value of ``after`` with which the segment of ``task`` comes first."""
    start = c.scalar(_COVERING, {"s": stage, "task": task})
    return int(start) - 1 if start is not None else -1


def unnumbered(c: Connection, stage: str) -> bool:
    """Return whether a stage has segments without an arrival number."""
    return c.execute(_UNNUMBERED, {"s": stage}).first() is not None


def number(c: Connection, stage: str) -> None:
    """Assign arrival numbers to new segments, under the stage's lock; readers call this, so reports stay cheap."""
    c.execute(_LOCK, {"s": stage})
    c.execute(_NUMBER, {"s": stage})


def arrived(c: Connection, stage: str, after: int, limit: int = 200) -> list[tuple[int, Segment]]:
    """Return (arrival number, segment) of the segments after number ``after``."""
    rows = c.execute(_ARRIVED, {"s": stage, "after": after, "most": limit})
    return [(number, Segment(*columns)) for number, *columns in rows]


@dataclass(frozen=True, slots=True)
class News:
    """What decides how a stream of result lines continues; ``unnumbered``, ``arrived``: whether there are segments."""

    state: State
    reason: str | None
    unnumbered: bool
    arrived: bool


def news(c: Connection, simulation: str, stage: str, after: int) -> News | None:
    """Return whether segments have arrived after number ``after``; None if the simulation was deleted."""
    row = c.execute(_NEWS, {"i": simulation, "s": stage, "after": after}).first()
    return News(State(row.state), row.reason, bool(row.unnumbered), bool(row.arrived)) if row else None


def segment_at(c: Connection, stage: str, start: int) -> Segment | None:
    """Return the segment that starts at a task, or None."""
    return read_row(c.execute(_SEGMENT_AT, {"s": stage, "at": start}).first(), Segment)


def artifact_page(c: Connection, simulation: str, after: tuple[int, str], limit: int) -> list[Artifact]:
    """Return artifacts after (task, name), in that order."""
    task, name = after
    rows = c.execute(_ARTIFACTS, {"i": simulation, "after": task, "after_name": name, "most": limit})
    return read_rows(rows, Artifact)


def artifact(c: Connection, simulation: str, task: int, name: str) -> Artifact | None:
    """Return an artifact, or None."""
    a = artifacts.c
    query = select(*_ARTIFACT_COLUMNS).where(a.simulation_id == simulation, a.task == task, a.name == name)
    return read_row(c.execute(query).first(), Artifact)


def add_artifact(c: Connection, simulation: str, item: Artifact) -> None:
    """Insert an artifact's row; its bytes are durable already."""
    c.execute(artifacts.insert().values(simulation_id=simulation, **asdict(item)))


def add_log(c: Connection, simulation: str, name: str, object: str, size: int) -> None:
    """Insert the row of a log piece, as the simulation's last."""
    seq = c.scalar(select(func.coalesce(func.max(logs.c.seq), 0) + 1).where(logs.c.simulation_id == simulation))
    c.execute(logs.insert().values(simulation_id=simulation, seq=seq, name=name, object=object, bytes=size))


def log_pieces(c: Connection, simulation: str, after: int, limit: int = 200) -> list[LogRow]:
    """Return log pieces after number ``after``."""
    return read_rows(c.execute(_LOG_PIECES, {"i": simulation, "after": after, "most": limit}), LogRow)


def hold_objects(c: Connection) -> None:
    """Prevent ``repoint`` until the transaction ends, which is about to refer to objects of other simulations."""
    lock(c, _OBJECTS_LOCK, shared=True)


def move_objects(c: Connection) -> None:
    """Wait for the transactions that hold objects, so that ``repoint`` sees their rows, and prevent further ones."""
    lock(c, _OBJECTS_LOCK)


def repoint(c: Connection, old: str, new: str, shift: int) -> None:
    """Replace references to an object by references to another that contains it at offset ``shift``."""
    values = {"old": old, "new": new, "shift": shift}
    c.execute(_REPOINT_SEGMENTS, values)
    c.execute(_REPOINT_ARTIFACTS, values)


def inherit_artifacts(c: Connection, old: str, new: str, start: int, stop: int) -> None:
    """Copy the artifact rows of tasks [start, stop) from an old simulation to a new one."""
    c.execute(_INHERIT, {"old": old, "new": new, "start": start, "stop": stop})


def needed(c: Connection, object: str, *, but: str = "") -> bool:
    """Return whether a row of any simulation, or of any other than ``but``, refers to an object."""
    values = {"object": object, "but": but}
    return any(c.execute(query, values).first() is not None for query in _NEEDED)


def objects_of(c: Connection, simulation: str) -> list[str]:
    """Return the keys of all objects that a simulation's rows refer to."""
    return list(c.scalars(_OBJECTS, {"i": simulation}))


def forget(c: Connection, simulation: str, limit: int) -> bool:
    """Delete up to ``limit`` rows of each kind of a simulation, stages and its own row last; return whether all are."""
    values = {"i": simulation, "limit": limit}
    if any(c.execute(statement, values).rowcount == limit for statement in _FORGET):
        return False
    for statement in _FORGET_LAST:
        c.execute(statement, values)
    return True


_INHERIT = text(
    'INSERT INTO artifacts(simulation_id, task, name, media_type, object, "offset", bytes, crc32)'
    ' SELECT :new, task, name, media_type, object, "offset", bytes, crc32 FROM artifacts'
    " WHERE simulation_id=:old AND task>=:start AND task<:stop"
)
_OBJECTS = text(
    "SELECT object FROM segments WHERE stage_id IN (SELECT id FROM stages WHERE simulation_id=:i)"
    " UNION SELECT object FROM artifacts WHERE simulation_id=:i UNION SELECT object FROM logs WHERE simulation_id=:i"
)
_NEEDED = (
    text(
        "SELECT 1 FROM segments g JOIN stages s ON s.id=g.stage_id"
        " WHERE g.object=:object AND s.simulation_id<>:but LIMIT 1"
    ),
    text("SELECT 1 FROM artifacts WHERE object=:object AND simulation_id<>:but LIMIT 1"),
)
_FORGET = [
    text(
        f"DELETE FROM {table} WHERE (stage_id, start) IN (SELECT r.stage_id, r.start FROM {table} r"
        " JOIN stages s ON s.id=r.stage_id WHERE s.simulation_id=:i LIMIT :limit)"
    )
    for table in ("segments", "ranges")
] + [
    text(
        f"DELETE FROM {table} WHERE (simulation_id, {keys}) IN"
        f" (SELECT simulation_id, {keys} FROM {table} WHERE simulation_id=:i LIMIT :limit)"
    )
    for table, keys in (("artifacts", "task, name"), ("logs", "seq"), ("events", "seq"))
]
_FORGET_LAST = [
    text("DELETE FROM stages WHERE simulation_id=:i"),
    text("DELETE FROM launches WHERE simulation_id=:i"),
    text("DELETE FROM model_imports WHERE simulation_id=:i"),
    text("DELETE FROM run_logs WHERE simulation_id=:i"),
    text("DELETE FROM look_requests WHERE simulation_id=:i"),
    text("DELETE FROM tunnel_pieces WHERE tunnel_id IN (SELECT id FROM tunnels WHERE simulation_id=:i)"),
    text("DELETE FROM tunnels WHERE simulation_id=:i"),
    text("DELETE FROM looks WHERE simulation_id=:i"),
    text("DELETE FROM simulations WHERE id=:i"),
]
