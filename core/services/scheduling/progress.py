"""How far a simulation has come, summed up from its segments as they arrive."""

import json
from collections.abc import Mapping
from typing import Any

from core.domain.statistics import merged, sketched
from core.store.leases import Segment


def too_many(spec: Mapping[str, Any], failed: int) -> str | None:
    """Return why a simulation fails in which so many tasks did not go well; None if it may go on."""
    most = spec.get("max_failures")
    return None if most is None or failed <= most else f"{failed} tasks did not go well; at most {most} were allowed"


class Progress:
    """What has arrived of one simulation, summed up as it came; a dispatcher that starts anew begins at nothing.

    Results that a retry took over lie in objects of another simulation: they are done, and tell nothing of its speed.
    """

    def __init__(self, simulation: str | None = None) -> None:
        self.arrived = 0
        self._own = "" if simulation is None else f"results/{simulation}/"
        self._done = 0
        self._played = 0
        self._failed = 0
        self._sums: dict[str, list[float]] = {}

    def add(self, page: list[tuple[int, Segment]]) -> None:
        """Take in segments with their numbers of arrival."""
        for number, segment in page:
            self.arrived = number
            self._done += segment.stop - segment.start
            if segment.object.startswith(self._own):
                self._played += segment.stop - segment.start
            self._failed += segment.failed
        merged((json.loads(segment.sketch) for _, segment in page if segment.sketch), self._sums)

    def describe(self, total: int, seconds: float) -> dict[str, Any]:
        """Return the event's body; rate in tasks a second, ETA in seconds."""
        rate = self._played / seconds if seconds > 0 else None
        return {
            "total": total,
            "done": self._done,
            "failed": self._failed,
            "rate": rate,
            "eta": (total - self._done) / rate if rate else None,
            "metrics": sketched(self._sums),
        }
