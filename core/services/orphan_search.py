"""Orphan search: decides when a service lists all its objects for those that no row refers to."""

import time

#: Seconds between two searches of a process, which list all objects.
INTERVAL = 3600.0


class OrphanSearch:
    """Clock of one service's searches. The first is due at once: the process before may have been killed.

    ``interval``: seconds between two; ``first``: between the first two, if that is another time.
    """

    def __init__(self, interval: float = INTERVAL, *, first: float | None = None) -> None:
        self._interval = interval
        self._next = interval if first is None else first
        self._due_at = 0.0

    def begin(self) -> bool:
        """Return whether a search is due; the next one is then due after the interval."""
        now = time.monotonic()
        if now < self._due_at:
            return False
        self._due_at, self._next = now + self._next, self._interval
        return True
