"""The queue: simulations and tasks that wait, by reason, and the leases that are held, by executor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from core.domain.scheduling.executor_config import ExecutorConfig
from core.domain.scheduling.queue_reasons import reason_of
from core.domain.scheduling.states import State
from core.services.operations.measurement import Measurement
from core.store import executors, queue_counts
from core.store.database import Database
from core.store.simulations import by_state

#: Seconds for which counts are kept.
INTERVAL = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingReason:
    """Simulations that wait for the same; ``tasks``: without a result."""

    state: str
    executor: str | None
    reason: str
    simulations: int
    tasks: int
    oldest_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """All simulations that wait."""

    simulations: int
    tasks: int
    oldest_at: datetime | None
    reasons: Sequence[WaitingReason]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorLoad:
    """Launches and leases of an executor; ``tasks``: without a result, ``rate``: tasks per second."""

    name: str
    launches: int
    leases: int = 0
    tasks: int = 0
    rate: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueLoad:
    """The queue, and the time at which it was counted; None: not yet."""

    measured_at: datetime | None = None
    waiting: Waiting | None = None
    executors: Sequence[ExecutorLoad] | None = None


class Queue:
    """Counts what waits and what runs."""

    def __init__(self, database: Database, executor_configs: Sequence[ExecutorConfig]) -> None:
        self._database = database
        self._names = [config.name for config in executor_configs]
        self._counts = Measurement(self._measure, interval=INTERVAL)

    def counts(self) -> QueueLoad:
        """Return the counts with the time at which they were read."""
        counts = self._counts.latest()
        return replace(counts.value or QueueLoad(), measured_at=counts.at)

    def states(self) -> Mapping[str, int]:
        """Return the number of simulations by state, counted at each call."""
        with self._database.read() as c:
            return by_state(c)

    def _measure(self) -> QueueLoad:
        with self._database.read() as c:
            groups = queue_counts.waiting(c, self._database.now(c))
            closed = executors.closed(c)
            leases, launches = queue_counts.leases(c), queue_counts.launches(c)
        reasons = [
            WaitingReason(
                state=group.state,
                executor=group.executor,
                reason=reason_of(
                    State(group.state),
                    group.executor,
                    awaits_model=bool(group.awaits_model),
                    paused=bool(group.paused),
                    unprepared=bool(group.unprepared),
                    closed=closed,
                    executors=self._names,
                ),
                simulations=group.simulations,
                tasks=int(group.tasks or 0),
                oldest_at=datetime.fromtimestamp(group.since, UTC),
            )
            for group in groups
        ]
        return QueueLoad(
            waiting=Waiting(
                simulations=sum(reason.simulations for reason in reasons),
                tasks=sum(reason.tasks for reason in reasons),
                oldest_at=min((reason.oldest_at for reason in reasons), default=None),
                reasons=reasons,
            ),
            executors=[_load(name, launches.get(name, 0), leases.get(name)) for name in self._names],
        )


def _load(name: str, launches: int, sums: queue_counts.LeaseSums | None) -> ExecutorLoad:
    if sums is None:
        return ExecutorLoad(name=name, launches=launches)
    tasks, rate = int(sums.tasks or 0), float(sums.rate or 0.0)
    return ExecutorLoad(name=name, launches=launches, leases=sums.leases, tasks=tasks, rate=rate)
