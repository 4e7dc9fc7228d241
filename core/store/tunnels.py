"""Tunnels in SQL: connections of people to ports of programs, and the pieces of bytes that wait for their reader."""

from typing import Literal

from sqlalchemy import Connection, bindparam, delete, func, insert, select, text, update

from core.store.rows import StoredRow, columns_of, read_row
from core.store.tables import tunnel_pieces, tunnels

#: The side that sends a piece.
Side = Literal["person", "program"]
#: Pieces of a side that wait at most, and that are read at once.
MOST_WAITING_PIECES, MOST_AT_ONCE = 16, 8


class TunnelRow(StoredRow, frozen=True, gc=False):
    """A connection of a person to a port of a program."""

    id: str
    simulation_id: str
    task: int
    port: str
    opened_by: str
    asked_at: float


_FIND = select(*columns_of(tunnels, TunnelRow)).where(tunnels.c.id == bindparam("tunnel"))
_OF_SIDE = (tunnel_pieces.c.tunnel_id == bindparam("tunnel")) & (tunnel_pieces.c.side == bindparam("of"))
_WAITING_PIECES = select(func.count(), func.max(tunnel_pieces.c.number)).where(_OF_SIDE)
_PUSH = text(
    "INSERT INTO tunnel_pieces(tunnel_id, side, number, data) VALUES(:tunnel, :of, :n, :bytes)"
    " ON CONFLICT(tunnel_id, side, number) DO NOTHING"
)
_FORGET_READ = delete(tunnel_pieces).where(_OF_SIDE, tunnel_pieces.c.number < bindparam("before"))
_PULL = (
    select(tunnel_pieces.c.number, tunnel_pieces.c.data)
    .where(_OF_SIDE, tunnel_pieces.c.number >= bindparam("after"))
    .order_by(tunnel_pieces.c.number)
    .limit(MOST_AT_ONCE)
)
_NOTE_PERSON = update(tunnels).where(tunnels.c.id == bindparam("tunnel")).values(asked_at=bindparam("now"))


def open(c: Connection, tunnel: TunnelRow) -> None:
    """Insert a connection."""
    values = {name: getattr(tunnel, name) for name in TunnelRow.__struct_fields__}
    c.execute(insert(tunnels).values(**values))


def find(c: Connection, id: str) -> TunnelRow | None:
    """Return a connection, None once it is over."""
    return read_row(c.execute(_FIND, {"tunnel": id}).first(), TunnelRow)


def count(c: Connection, simulation: str) -> int:
    """Return how many connections there are to programs of a simulation."""
    return int(c.scalar(select(func.count()).where(tunnels.c.simulation_id == simulation)) or 0)


def close_absent(c: Connection, simulation: str, before: float) -> None:
    """Delete the connections of a simulation whose person's side was there before a time last."""
    absent = select(tunnels.c.id).where(tunnels.c.simulation_id == simulation, tunnels.c.asked_at < before)
    for id in c.scalars(absent).all():
        close(c, id)


def note_person(c: Connection, id: str, now: float) -> None:
    """Note that the person's side is there."""
    c.execute(_NOTE_PERSON, {"tunnel": id, "now": now})


def push(c: Connection, id: str, side: Side, number: int, data: bytes) -> bool:
    """Insert a piece of a side, unless it is there; return False if too many wait."""
    waiting, newest = c.execute(_WAITING_PIECES, {"tunnel": id, "of": side}).one()
    if waiting >= MOST_WAITING_PIECES and (newest is None or number > newest):
        return False
    c.execute(_PUSH, {"tunnel": id, "of": side, "n": number, "bytes": data})
    return True


def pull(c: Connection, id: str, side: Side, number: int) -> list[tuple[int, bytes]]:
    """Return the pieces of a side from a number on, in order."""
    rows = c.execute(_PULL, {"tunnel": id, "of": side, "after": number})
    return [(int(number), bytes(data)) for number, data in rows]


def forget_read(c: Connection, id: str, side: Side, number: int) -> None:
    """Delete the pieces of a side before a number, which their reader has."""
    c.execute(_FORGET_READ, {"tunnel": id, "of": side, "before": number})


def newest(c: Connection, id: str, side: Side) -> int:
    """Return the number of the newest piece of a side that waits, or -1."""
    _, newest = c.execute(_WAITING_PIECES, {"tunnel": id, "of": side}).one()
    return -1 if newest is None else int(newest)


def close(c: Connection, id: str) -> None:
    """Delete a connection, with what waits of it."""
    c.execute(delete(tunnel_pieces).where(tunnel_pieces.c.tunnel_id == id))
    c.execute(delete(tunnels).where(tunnels.c.id == id))
