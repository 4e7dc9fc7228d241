"""Standstill: whether nothing progresses because a process of the platform does not work, and which."""

from collections.abc import Callable

from core.store import leaders
from core.store.database import Connection, Database

#: Seconds without a leading dispatcher after which that is said: a successor takes a few.
LAPSE = 10.0


class Standstill:
    """Knows the roles of this machine from its supervisor, and the dispatcher of any machine from its term."""

    def __init__(self, database: Database, roles: Callable[[], str | None]) -> None:
        self._database = database
        self._roles = roles

    def problem(self, c: Connection) -> str | None:
        """Return what does not work, None if nothing is known to stand still."""
        if (problem := self._roles()) is not None or self._database.embedded:
            return problem
        lapsed = leaders.lapsed(c, "dispatch", self._database.now(c))
        if lapsed is None or lapsed < LAPSE:
            return None
        return f"no dispatcher has led for {lapsed:.0f} s (it admits, launches and ends simulations)"
