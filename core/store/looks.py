"""Looks into tasks in SQL: requests, until they are answered, and the records of who has looked at what."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, bindparam, delete, insert, select, text, update

from core.store.rows import StoredRow, columns_of, read_rows
from core.store.tables import look_requests, looks


@dataclass(frozen=True, kw_only=True, slots=True)
class LookSubject:
    """Who looks at what: a record has all of its looks."""

    simulation: str
    task: int
    kind: str
    path: str
    by: str


class LookRow(StoredRow, frozen=True, gc=False):
    """Who has looked at what in a task, how often, and how many bytes of it."""

    task: int
    kind: str
    path: str
    looked_by: str
    times: int
    bytes: int
    first_at: float
    last_at: float


_WAITING_LOOKS = select(look_requests.c.id).where(
    look_requests.c.simulation_id == bindparam("i"), look_requests.c.taken == text("0")
)
_TAKE = (
    update(look_requests)
    .where(look_requests.c.simulation_id == bindparam("i"), look_requests.c.taken == text("0"))
    .values(taken=1)
    .returning(look_requests.c.request)
)
_ANSWER = (
    update(look_requests)
    .where(
        look_requests.c.id == bindparam("look"),
        look_requests.c.simulation_id == bindparam("i"),
        look_requests.c.answer.is_(None),
    )
    .values(answer=bindparam("text"), data=bindparam("bytes"))
)
_ANSWERED_LOOKS = select(look_requests.c.id).where(
    look_requests.c.id.in_(bindparam("ids", expanding=True)), look_requests.c.answer.is_not(None)
)
_FIND = select(look_requests.c.answer, look_requests.c.data).where(look_requests.c.id == bindparam("look"))
_RECORD = text(
    "INSERT INTO looks(simulation_id, task, kind, path, looked_by, times, bytes, first_at, last_at)"
    " VALUES(:simulation, :task, :kind, :path, :by, 1, :bytes, :now, :now)"
    " ON CONFLICT(simulation_id, task, kind, path, looked_by) DO UPDATE"
    " SET times=looks.times+1, bytes=looks.bytes+excluded.bytes, last_at=excluded.last_at"
)
_COUNT = text(
    "UPDATE looks SET bytes=bytes+:bytes, last_at=:now WHERE simulation_id=:simulation AND task=:task AND kind=:kind"
    " AND path=:path AND looked_by=:by"
)


def ask(c: Connection, simulation: str, id: str, request: str, now: float) -> None:
    """Insert a look that is to be answered; ``request``: as its runner gets it."""
    c.execute(insert(look_requests).values(id=id, simulation_id=simulation, request=request, created_at=now))


def are_waiting(c: Connection, simulation: str) -> bool:
    """Return whether looks into tasks of a simulation wait for a runner."""
    return c.execute(_WAITING_LOOKS.limit(1), {"i": simulation}).first() is not None


def take(c: Connection, simulation: str) -> Sequence[str]:
    """Return the looks that wait for a runner, which has them now."""
    return c.scalars(_TAKE, {"i": simulation}).all()


def answer(c: Connection, simulation: str, id: str, document: str, data: bytes) -> None:
    """Write the answer to a look, if it is still waited for."""
    c.execute(_ANSWER, {"look": id, "i": simulation, "text": document, "bytes": data})


def answered_ids(c: Connection, ids: Sequence[str]) -> set[str]:
    """Return which looks are answered."""
    return set(c.scalars(_ANSWERED_LOOKS, {"ids": list(ids)}))


def answer_of(c: Connection, id: str) -> tuple[str, bytes] | None:
    """Return the answer to a look, and the bytes that it has seen; or None."""
    row = c.execute(_FIND, {"look": id}).first()
    return None if row is None or row.answer is None else (str(row.answer), bytes(row.data))


def forget(c: Connection, id: str, before: float) -> None:
    """Delete a look, and those that were asked before a time, which are left of processes that have ended."""
    c.execute(delete(look_requests).where((look_requests.c.id == id) | (look_requests.c.created_at < before)))


def record(c: Connection, subject: LookSubject, seen: int, now: float) -> None:
    """Count a look, and the bytes that it has seen."""
    c.execute(_RECORD, {**asdict(subject), "bytes": seen, "now": now})


def count_bytes(c: Connection, subject: LookSubject, seen: int, now: float) -> None:
    """Add bytes to the record of a look that goes on."""
    c.execute(_COUNT, {**asdict(subject), "bytes": seen, "now": now})


def records(c: Connection, simulation: str, after: int, limit: int) -> list[LookRow]:
    """Return who has looked at what in the tasks of a simulation, but for the first ``after``, in their order."""
    query = select(*columns_of(looks, LookRow)).where(looks.c.simulation_id == simulation)
    order = (looks.c.first_at, looks.c.task, looks.c.kind, looks.c.path, looks.c.looked_by)
    return read_rows(c.execute(query.order_by(*order).offset(after).limit(limit)), LookRow)
