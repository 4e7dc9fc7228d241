"""All the dispatcher decides on: what has not ended, and what is lent to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from core.domain.admission import Waiting
from core.domain.launches import Gang
from core.domain.states import State


@dataclass(frozen=True, slots=True)
class Busy:
    """A simulation that has not ended, as the dispatcher sees it."""

    id: str
    state: State
    attempt: int
    executor: str  # where it runs; empty while it waits
    asked: str  # where it asked to
    among: frozenset[str] | None  # the places that could run it; None: all
    requested: int | None  # pairs at work at once; None: all there are
    workers: int  # what it gets where it runs
    dry_run: bool
    created_at: float
    not_before: float
    started_at: float | None
    timeout: float | None
    claimed: bool
    provenance: Mapping[str, Any]
    spec: Mapping[str, Any]
    project: str
    bundle: Mapping[str, Any]

    @property
    def unattended(self) -> bool:
        """Whether no runner goes with its launches: a gang of an operator's, or in an image of its own."""
        gang = self.spec.get("gang")
        return gang is not None and not msgspec.convert(gang, Gang).attended


@dataclass(frozen=True, slots=True)
class Lent:
    """A launch that is not over."""

    id: str
    simulation: str
    attempt: int
    executor: str
    workers: int
    state: State  # of its simulation
    age: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All the dispatcher decides on."""

    now: float
    busy: tuple[Busy, ...]
    launches: tuple[Lent, ...]

    @property
    def queue(self) -> list[Waiting]:
        """What waits to be admitted."""
        return [
            Waiting(one.id, one.requested, one.created_at, one.not_before, one.dry_run, one.asked, one.among)
            for one in self.busy
            if one.state is State.QUEUED
        ]

    def in_use(self, executor: str) -> int:
        """Cores that are held in one place: by launches, and by what is admitted and on its way to one."""
        launched = {lent.simulation for lent in self.launches}
        coming = sum(
            one.workers
            for one in self.busy
            if one.state in {State.STAGING, State.LAUNCHING, State.RUNNING}
            and one.executor == executor
            and one.id not in launched
            and not one.claimed
        )
        return sum(lent.workers for lent in self.launches if lent.executor == executor) + coming
