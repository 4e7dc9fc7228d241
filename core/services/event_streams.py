"""Events as they are inserted, of a simulation or a comparison, with heartbeats."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from common.errors import NotFound
from core.domain.submissions.records import Event
from core.domain.submissions.stored_documents import load_document
from core.notifications.change_notifier import Waiters
from core.store.events import EventRow


def follow(
    changes: Waiters,
    id: str,
    events: Callable[[str, int], Sequence[Event]],
    ended: Callable[[str, int], bool],
    *,
    after: int,
    heartbeat: float,
) -> Iterator[Event | None]:
    """Yield the events after number ``after``, None as a heartbeat; end after the final event, or a deletion.

    ``events``: returns the present events of an id after a number. ``ended``: whether no event will follow a number.
    """
    with changes.watching(id):
        while True:
            version = changes.version(id)
            try:
                present = events(id, after)
            except NotFound:
                return
            for event in present:
                after = event.seq
                yield event
            if not present:
                try:
                    if ended(id, after):
                        return
                except NotFound:
                    return
                if not changes.wait(id, version, heartbeat):
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
