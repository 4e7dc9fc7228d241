"""Audit buffer: entries that are written in batches, equal ones as one with a count, and never more than its bound.

The first of equal entries is due at once, further ones once in a minute. Requests of unknown callers have few places:
an attacker with many addresses fills these, and the rest of his tries is counted together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.domain.access.audit import AuditEntry

#: Seconds between two entries for equal acts.
INTERVAL = 60.0
#: Most different entries in the buffer, and most of them of unknown callers.
MOST_ENTRIES, MOST_ANONYMOUS_ENTRIES = 10_000, 100


@dataclass(slots=True)
class _EntryCount:
    times: int
    written_at: float | None = None


class AuditBuffer:
    """Entries that wait. Times in seconds on a monotonic clock. Its user locks it."""

    def __init__(self) -> None:
        self._counted: dict[AuditEntry, _EntryCount] = {}
        self._anonymous = 0

    def add(self, entry: AuditEntry, times: int = 1) -> None:
        """Take an entry, and count it with its equals."""
        entry = self._coarsen(entry)
        if (counted := self._counted.get(entry)) is not None:
            counted.times += times
            return
        self._counted[entry] = _EntryCount(times)
        self._anonymous += entry.anonymous

    def due(self, now: float, *, every: bool = False) -> Sequence[tuple[AuditEntry, int]]:
        """Return the entries to write now, with their counts; ``every``: also those that would wait."""
        due = []
        for entry, counted in list(self._counted.items()):
            fresh = counted.written_at is not None and now - counted.written_at < INTERVAL
            if fresh and not every:
                continue
            if counted.times:
                due.append((entry, counted.times))
                counted.times, counted.written_at = 0, now
            elif not fresh:
                del self._counted[entry]
                self._anonymous -= entry.anonymous
        return due

    def __len__(self) -> int:
        return len(self._counted)

    def _coarsen(self, entry: AuditEntry) -> AuditEntry:
        """Return an entry, or where there is no place for one more, the less exact one with which it is counted."""
        if entry in self._counted:
            return entry
        if entry.anonymous:
            if self._anonymous < MOST_ANONYMOUS_ENTRIES:
                return entry
            return replace(entry, subject="", address="", credential="", request="", affected=())
        if len(self._counted) < MOST_ENTRIES:
            return entry
        return replace(entry, subject="", address="", request="", affected=())
