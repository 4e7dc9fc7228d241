"""Standstill: whether nothing progresses because a process of the platform does not work, and which."""

from collections.abc import Callable

from core.store import leaders
from core.store.database import Connection, Database

#: Seconds without a leading dispatcher after which that is said: a successor takes a few.
LAPSE = 10.0


class Standstill:
    """Knows the roles of this machine from its supervisor, and the dispatcher of any machine from its term."""

    def __init__(self, database: Database, roles: Callable[[], str | None]) -> None:
        """``roles``: returns which processes of the platform on this machine do not work, None if all do."""
        self._database = database
        self.roles = roles

    def problem(self, c: Connection) -> str | None:
        """Return what does not work, None if nothing is known to stand still."""
        return self.roles() or self.leaderless(c)

    def leaderless(self, c: Connection) -> str | None:
        """Return for how long no dispatcher has led, None if one leads, or the database is this machine's own.

        It leaves an API ready: submissions are accepted meanwhile.
        """
        if self._database.embedded:
            return None
        lapsed = leaders.lapsed(c, "dispatch", self._database.now(c))
        if lapsed is None or lapsed < LAPSE:
            return None
        return f"no dispatcher has led for {lapsed:.0f} s (it admits, launches and ends simulations)"
