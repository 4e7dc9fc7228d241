"""Events of simulations and comparisons in SQL, numbered by the row of what they are about."""

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, func, insert, select, text

from common.errors import UnknownSimulation
from core.domain.scheduling.preparation import PreparationStep
from core.domain.scheduling.states import State
from core.domain.submissions.stored_documents import decode_document
from core.store.rows import StoredRow, columns_of, read_rows
from core.store.tables import events


class EventRow(StoredRow, frozen=True, gc=False):
    """An event of a simulation or a comparison; ``body`` is a document."""

    simulation_id: str
    seq: int
    type: str
    body: str
    at: float


_NEXT_EVENT = text("UPDATE simulations SET event_seq=event_seq+1, changed_at=:now WHERE id=:i RETURNING event_seq")
_NEXT_EVENT_WHILE = text(
    "UPDATE simulations SET event_seq=event_seq+1, changed_at=:now WHERE id=:i AND state=:state RETURNING event_seq"
)
_INSERT_EVENT = insert(events)
_EVENTS_AFTER = (
    select(*columns_of(events, EventRow))
    .where(events.c.simulation_id == bindparam("i"), events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
    .limit(bindparam("most"))
)
_LAST_EVENT = (
    select(events.c.type, events.c.body)
    .where(events.c.simulation_id == bindparam("i"), events.c.type.in_(bindparam("types", expanding=True)))
    .order_by(events.c.seq.desc())
    .limit(1)
)
_EVENTS_OF_TYPES = _EVENTS_AFTER.where(events.c.type.in_(bindparam("types", expanding=True)))


def insert_event(c: Connection, id: str, seq: int, type: str, body: Mapping[str, object], now: float) -> None:
    """Insert an event under a number that was taken for it in the same transaction."""
    c.execute(_INSERT_EVENT, {"simulation_id": id, "seq": seq, "type": type, "body": json.dumps(body), "at": now})


def say(c: Connection, id: str, type: str, body: Mapping[str, object], now: float) -> int:
    """Insert an event; the simulation's row numbers it in the same transaction, so that events appear in order."""
    seq = c.scalar(_NEXT_EVENT, {"i": id, "now": now})
    if seq is None:
        raise UnknownSimulation()
    insert_event(c, id, int(seq), type, body, now)
    return int(seq)


def say_while(c: Connection, id: str, state: State, type: str, body: Mapping[str, object], now: float) -> bool:
    """Insert an event as ``say`` does, if the simulation is in a state; return whether it was."""
    seq = c.scalar(_NEXT_EVENT_WHILE, {"i": id, "now": now, "state": state.value})
    if seq is None:
        return False
    insert_event(c, id, int(seq), type, body, now)
    return True


def read_after(c: Connection, id: str, after: int, limit: int = 500, types: Sequence[str] = ()) -> list[EventRow]:
    """Return the events after number ``after``; ``types``: only of these, of all if empty."""
    values = {"i": id, "after": after, "most": limit}
    if types:
        return read_rows(c.execute(_EVENTS_OF_TYPES, values | {"types": list(types)}), EventRow)
    return read_rows(c.execute(_EVENTS_AFTER, values), EventRow)


def last_of_types(c: Connection, id: str, types: Sequence[str]) -> tuple[str, Mapping[str, object]] | None:
    """Return type and body of a simulation's newest event of these types, or None."""
    row = c.execute(_LAST_EVENT, {"i": id, "types": list(types)}).first()
    if row is None:
        return None
    type, body = row
    return type, json.loads(body)


def bodies(c: Connection, id: str, type: str) -> list[Mapping[str, object]]:
    """Return the bodies of a simulation's events of one type."""
    query = select(events.c.body).where(events.c.simulation_id == id, events.c.type == type)
    return [json.loads(body) for body in c.scalars(query.order_by(events.c.seq))]


def preparation_steps(c: Connection, ids: Sequence[str]) -> dict[str, tuple[str, PreparationStep]]:
    """Return type and body of the last event of each of these simulations that says how it is staged or launched."""
    if not ids:
        return {}
    said = events.c.simulation_id.in_(ids) & events.c.type.in_(("staging", "launch"))
    last = select(events.c.simulation_id, func.max(events.c.seq).label("seq")).where(said)
    latest = last.group_by(events.c.simulation_id).subquery()
    query = select(events.c.simulation_id, events.c.type, events.c.body).join(
        latest, (events.c.simulation_id == latest.c.simulation_id) & (events.c.seq == latest.c.seq)
    )
    return {id: (type, decode_document(body, PreparationStep)) for id, type, body in c.execute(query)}
