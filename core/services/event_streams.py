"""Events as they are inserted, of a simulation, a comparison or a pipeline, with heartbeats."""

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

from common.errors import NotFound
from core.domain.access.scopes import Caller, ReadScope, Scope
from core.domain.submissions.records import Event
from core.domain.submissions.stored_documents import load_document
from core.notifications.change_notifier import Waiters
from core.store import events
from core.store.database import Connection, Database
from core.store.events import EventRow


class NumberedRow(Protocol):
    """A row that numbers its events."""

    @property
    def project(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def event_seq(self) -> int: ...


class EventLog:
    """The events of one kind of row.

    ``find``: returns the row of an id, or raises a NotFound. ``ended``: the states after whose event none follows.
    """

    def __init__(
        self,
        database: Database,
        changes: Waiters,
        find: Callable[[Connection, Scope | ReadScope, str], NumberedRow],
        ended: Collection[str],
    ) -> None:
        self._database = database
        self._changes = changes
        self._find = find
        self._ended = ended

    def read(
        self, caller: Caller, id: str, after: int = 0, limit: int = 500, *, types: Sequence[str] = ()
    ) -> list[Event]:
        """Return up to ``limit`` present events after number ``after``; ``types``: only of these, of all if empty."""
        with self._database.read() as c:
            self._find(c, caller.reading, id)
            rows = events.read_after(c, id, after, limit, types)
        return [event_of(row) for row in rows]

    def ended(self, caller: Caller, id: str, after: int) -> bool:
        """Return whether no event will follow number ``after``, unless the row runs again."""
        with self._database.read() as c:
            row = self._find(c, caller.reading, id)
        return row.state in self._ended and row.event_seq <= after

    def readability(self, caller: Caller, id: str) -> Callable[[], None] | None:
        """Return the check that a row of another project is still shared with the caller's; it raises a NotFound.

        None for a row of its own project, which is read as long as there is one.
        """

        def check() -> None:
            with self._database.read() as c:
                self._find(c, caller.reading, id)

        with self._database.read() as c:
            row = self._find(c, caller.reading, id)
        return None if caller.scope.project in (None, row.project) else check

    def follow(self, caller: Caller, id: str, after: int = 0, heartbeat: float = 15.0) -> Iterator[Event | None]:
        """Yield events as they are inserted, None as a heartbeat; end after the final event, or a deletion.

        Raise NotFound at once, before the response has begun.
        """
        self.read(caller, id, after)
        return self._follow(caller, id, after, heartbeat)

    def _follow(self, caller: Caller, id: str, after: int, heartbeat: float) -> Iterator[Event | None]:
        with self._changes.watching(id):
            while True:
                version = self._changes.version(id)
                try:
                    present = self.read(caller, id, after)
                    if not present and self.ended(caller, id, after):
                        return
                except NotFound:
                    return
                for event in present:
                    after = event.seq
                    yield event
                if not present and not self._changes.wait(id, version, heartbeat):
                    yield None


def event_of(row: EventRow) -> Event:
    """Return the event of a row."""
    return Event(
        simulation_id=row.simulation_id,
        seq=row.seq,
        type=row.type,
        body=load_document(row.body),
        at=datetime.fromtimestamp(row.at, UTC),
    )
