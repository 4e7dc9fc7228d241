"""How far a simulation has come, summed up from its segments as they arrive."""

import json
from typing import Any

from core.domain.statistics import merged, sketched
from core.store.ranges import Segment


class Progress:
    """What has arrived of one simulation, summed up as it came; a dispatcher that starts anew begins at nothing."""

    def __init__(self) -> None:
        self.arrived = 0
        self._done = 0
        self._failed = 0
        self._sums: dict[str, list[float]] = {}

    def add(self, page: list[tuple[int, Segment]]) -> None:
        """Take in segments with their numbers of arrival."""
        for number, segment in page:
            self.arrived = number
            self._done += segment.stop - segment.start
            self._failed += segment.failed
        merged((json.loads(segment.sketch) for _, segment in page if segment.sketch), self._sums)

    def describe(self, total: int, seconds: float) -> dict[str, Any]:
        """Return the event's body; rate in tasks a second, ETA in seconds."""
        rate = self._done / seconds if seconds > 0 else None
        return {
            "total": total,
            "done": self._done,
            "failed": self._failed,
            "rate": rate,
            "eta": (total - self._done) / rate if rate else None,
            "metrics": sketched(self._sums),
        }
