"""Changes of the list: ids of simulations that have changed, coalesced, for pages that show many simulations.

By polling an index of the times of changes, so that it works without Redis and in every process.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from core.domain.access.scopes import Caller
from core.notifications.change_notifier import LIST, Waiters
from core.store import simulations
from core.store.database import Database

#: Seconds between two messages of a stream, and between two looks without a sign of a change.
PAUSE, LOOK = 1.0, 5.0
#: Seconds for which a change may become visible later than others that are newer: the longest transaction.
OVERLAP = 10.0
#: Most ids of a message, and the most seconds that a stream goes back when it is resumed.
MOST, RESUMABLE = 500, 3600.0


@dataclass(frozen=True, slots=True)
class Changes:
    """Simulations that have changed, until a time in microseconds; ``all``: more than these may have."""

    ids: tuple[str, ...]
    all: bool
    until: int


class ListChanges:
    """Follows the changes of all simulations. Each stream is a waiter, and ends as those of one simulation do."""

    def __init__(self, database: Database, waiters: Waiters) -> None:
        self._database = database
        self._waiters = waiters

    def follow(self, caller: Caller, after: int | None = None, heartbeat: float = 15.0) -> Iterator[Changes | None]:
        """Yield a first message at once, then one for each second with changes, None as a heartbeat; without end.

        ``after``: the ``until`` of the last message received, or the time at which the list was read, in microseconds.
        The first message then has the changes since, and is sent once there are some.
        """
        with self._database.read() as c:
            now = self._database.now(c)
        since = now if after is None else min(now, after / 1e6)
        too_old = since < now - RESUMABLE
        return self._follow(
            caller, max(since, now - RESUMABLE), heartbeat, all_changed=too_old, resumed=after is not None
        )

    def _follow(
        self, caller: Caller, since: float, heartbeat: float, *, all_changed: bool, resumed: bool
    ) -> Iterator[Changes | None]:
        with self._waiters.watching(LIST):
            reported = {} if resumed else self._changed(caller, since - OVERLAP)
            announced, quiet_since = resumed and not all_changed, time.monotonic()
            woken = False
            while True:
                version = self._waiters.version(LIST)
                changed = self._changed(caller, since - OVERLAP)
                fresh = tuple(id for id, at in changed.items() if reported.get(id) != at)
                since, reported = max([since, *changed.values()]), changed
                if fresh or not announced:
                    complete = len(fresh) <= MOST and not all_changed
                    yield Changes(fresh[:MOST], not complete, int(since * 1e6))
                    announced, all_changed, quiet_since = True, False, time.monotonic()
                    self._pause()
                    woken = False
                    continue
                if woken:
                    self._pause()  # it was a change of another project, or one that lists do not show
                woken = self._waiters.wait(LIST, version, min(heartbeat, LOOK))
                if time.monotonic() - quiet_since >= heartbeat:
                    yield None
                    quiet_since = time.monotonic()

    def _changed(self, caller: Caller, moment: float) -> dict[str, float]:
        with self._database.read() as c:
            return dict(simulations.changed_since(c, caller.scope, moment, MOST + 1))

    def _pause(self) -> None:
        """Let the changes of a second collect; raises the refusal of the waiters once they are closed."""
        end = time.monotonic() + PAUSE
        while (remaining := end - time.monotonic()) > 0:
            self._waiters.wait(LIST, self._waiters.version(LIST), remaining)
