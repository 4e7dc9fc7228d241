"""Log of changes for the dispatcher in SQL: the simulations whose rows it has to read again.

Every change of a simulation's state or specification adds an entry in its own transaction; the dispatcher deletes those
that it has read.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, text

_ADD = text("INSERT INTO scheduling_changes(simulation_id) VALUES(:i)")
_ALL = text("SELECT number, simulation_id FROM scheduling_changes")
_DELETE = text("DELETE FROM scheduling_changes WHERE number IN :numbers").bindparams(
    bindparam("numbers", expanding=True)
)
#: Numbers per statement.
STEP = 500


def add(c: Connection, simulation: str) -> None:
    """Add an entry."""
    c.execute(_ADD, {"i": simulation})


def entries(c: Connection) -> list[tuple[int, str]]:
    """Return the entries (number, simulation) that are not acknowledged."""
    return [(number, id) for number, id in c.execute(_ALL)]


def acknowledge(c: Connection, numbers: Sequence[int]) -> None:
    """Delete entries. By number: an entry with a smaller number may commit later."""
    for at in range(0, len(numbers), STEP):
        c.execute(_DELETE, {"numbers": numbers[at : at + STEP]})
