"""Snapshot for the dispatcher: all simulations that have not ended and all live launches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from core.domain.admission import QueuedSimulation
from core.domain.launches import Gang
from core.domain.states import State


@dataclass(frozen=True, slots=True)
class ActiveSimulation:
    """A simulation that has not ended, as the dispatcher sees it."""

    id: str
    state: State
    attempt: int
    executor: str  # empty while it is queued
    requested_executor: str  # empty: any
    eligible: frozenset[str] | None  # the executors that could run it; None: all
    requested: int | None  # workers; None: as many as the executor has
    workers: int  # granted on its executor
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
        """Whether its launches have no runner: a gang started by an operator, or in its own image."""
        gang = self.spec.get("gang")
        return gang is not None and not msgspec.convert(gang, Gang).attended


@dataclass(frozen=True, slots=True)
class LiveLaunch:
    """A launch that is not over; ``age`` in seconds."""

    id: str
    simulation: str
    attempt: int
    executor: str
    workers: int
    state: State  # of its simulation
    age: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that the dispatcher's decisions depend on, read at ``now``."""

    now: float
    busy: tuple[ActiveSimulation, ...]
    launches: tuple[LiveLaunch, ...]

    @property
    def queue(self) -> list[QueuedSimulation]:
        """Simulations to be admitted."""
        return [
            QueuedSimulation(
                id=simulation.id,
                requested=simulation.requested,
                submitted_at=simulation.created_at,
                not_before=simulation.not_before,
                brief=simulation.dry_run,
                executor=simulation.requested_executor,
                eligible=simulation.eligible,
            )
            for simulation in self.busy
            if simulation.state is State.QUEUED
        ]

    def in_use(self, executor: str) -> int:
        """Workers in use on an executor: by launches, and by simulations that are admitted but not yet launched."""
        launched = {launch.simulation for launch in self.launches}
        admitted = sum(
            simulation.workers
            for simulation in self.busy
            if simulation.state in {State.STAGING, State.LAUNCHING, State.RUNNING}
            and simulation.executor == executor
            and simulation.id not in launched
            and not simulation.claimed
        )
        return sum(launch.workers for launch in self.launches if launch.executor == executor) + admitted
