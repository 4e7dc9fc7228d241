"""The queue: simulations and tasks that wait, by reason, and the leases that are held, by executor."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from core.domain.scheduling.executor_config import ExecutorConfig
from core.domain.scheduling.queue_reasons import reason_of
from core.domain.scheduling.states import State
from core.services.operations.measurement import Measurement
from core.store import executors, queue_counts
from core.store.database import Database
from core.store.simulations import by_state

#: Seconds for which counts are kept.
INTERVAL = 0.25


class Queue:
    """Counts what waits and what runs."""

    def __init__(self, database: Database, executor_configs: Sequence[ExecutorConfig]) -> None:
        self._database = database
        self._names = [config.name for config in executor_configs]
        self._counts = Measurement(self._measure, interval=INTERVAL)

    def describe(self) -> dict[str, Any]:
        """Return the counts with the time at which they were read."""
        counts = self._counts.latest()
        return {"measured_at": counts.at, "waiting": None, "executors": None} | (counts.value or {})

    def states(self) -> Mapping[str, int]:
        """Return the number of simulations by state, counted at each call."""
        with self._database.read() as c:
            return by_state(c)

    def _measure(self) -> dict[str, Any]:
        with self._database.read() as c:
            groups = queue_counts.waiting(c, self._database.now(c))
            closed = executors.closed(c)
            leases, launches = queue_counts.leases(c), queue_counts.launches(c)
        reasons = [
            {
                "state": group.state,
                "executor": group.executor,
                "reason": reason_of(
                    State(group.state),
                    group.executor,
                    awaits_model=bool(group.awaits_model),
                    paused=bool(group.paused),
                    unprepared=bool(group.unprepared),
                    closed=closed,
                    executors=self._names,
                ),
                "simulations": int(group.simulations),
                "tasks": int(group.tasks or 0),
                "oldest_at": datetime.fromtimestamp(group.since, UTC),
            }
            for group in groups
        ]
        return {
            "waiting": {
                "simulations": sum(reason["simulations"] for reason in reasons),
                "tasks": sum(reason["tasks"] for reason in reasons),
                "oldest_at": min((reason["oldest_at"] for reason in reasons), default=None),
                "reasons": reasons,
            },
            "executors": [
                {
                    "name": name,
                    "launches": launches.get(name, 0),
                    "leases": int(leases[name].leases) if name in leases else 0,
                    "tasks": int(leases[name].tasks or 0) if name in leases else 0,
                    "rate": float(leases[name].rate or 0.0) if name in leases else 0.0,
                }
                for name in self._names
            ],
        }
