"""Preparation queue: which of the queued simulations that need a preparation begin it now; values only, no I/O."""

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from core.domain.scheduling.preparation import JOBS, Missing, Preparation

#: The most simulations that are prepared, or have been and wait for workers, for each kind of job. What they need is
#: pinned in the node cache.
ROOM = 32


@dataclass(frozen=True, slots=True, order=True)
class Unprepared:
    """A queued simulation, when it was submitted, the executor that it is prepared for, and what is missing."""

    submitted_at: float
    id: str
    executor: str
    missing: Missing


class PreparationQueue:
    """Unprepared simulations in the order of their submission, with a line for each kind of job.

    So a slow preparation of one kind keeps none of the other waiting.
    """

    def __init__(self) -> None:
        self._lines: dict[Preparation, list[Unprepared]] = {job: [] for job in JOBS}
        self._known: dict[str, Unprepared] = {}
        self._new: set[str] = set()

    def put(self, item: Unprepared) -> None:
        """Insert a simulation, or replace what is known of it."""
        self.discard(item.id)
        self._known[item.id] = item
        self._new.add(item.id)
        insort(self._lines[item.missing.job], item)

    def discard(self, id: str) -> None:
        """Remove a simulation, if it is here."""
        if (item := self._known.pop(id, None)) is not None:
            self._new.discard(id)
            self._lines[item.missing.job].remove(item)

    def begin(self, under_way: Mapping[Preparation, int], prepared: int) -> Iterator[Unprepared]:
        """Yield the simulations whose preparation begins now; each is removed when the caller asks for the next.

        So one whose beginning could not be written stays. ``under_way``: the number of those being prepared, by kind
        of job. ``prepared``: of those that wait for workers.
        """
        for job, line in self._lines.items():
            room = min(len(line), max(0, ROOM - prepared - under_way.get(job, 0)))
            for item in line[:room]:
                yield item
                self.discard(item.id)

    def newly_waiting(self) -> list[str]:
        """Return the simulations that wait here and of which this is not recorded yet."""
        return sorted(self._new)

    def recorded(self, ids: Iterable[str]) -> None:
        """Take note that it is recorded of these simulations that they wait."""
        self._new.difference_update(ids)
