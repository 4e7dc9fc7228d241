"""Admission: which queued simulations start now, and on which executor; a pure function of a snapshot."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from core.domain.executor_config import ExecutorConfig


@dataclass(frozen=True, slots=True)
class QueuedSimulation:
    """A queued simulation. ``requested``: workers, None for as many as the executor has; ``executor``: "" for any.

    ``brief``: a dry run, which bypasses the queue. ``eligible``: the executors that could run it; None: all.
    """

    id: str
    requested: int | None
    submitted_at: float
    not_before: float = 0.0
    brief: bool = False
    executor: str = ""
    eligible: frozenset[str] | None = None

    def may_run(self, executor: str) -> bool:
        """Return whether it could run on an executor."""
        return self.executor in {"", executor} and (self.eligible is None or executor in self.eligible)


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """Free workers of an executor; an unhealthy executor has none and does not block what could run elsewhere."""

    config: ExecutorConfig
    free: int
    healthy: bool = True


def admit(
    queue: Iterable[QueuedSimulation], capacities: Iterable[FreeCapacity], now: float
) -> Iterator[tuple[QueuedSimulation, str]]:
    """Yield (simulation, executor) to start now: first come first served, to the executor with most free workers.

    The head of the queue waits for capacity, and simulations that could run on the same executors wait behind it, so
    that many small simulations never starve a large one. A dry run (``brief``) bypasses the queue: it is one step long.
    """
    healthy = [capacity for capacity in capacities if capacity.healthy]
    configs: Mapping[str, ExecutorConfig] = {capacity.config.name: capacity.config for capacity in healthy}
    free = {capacity.config.name: capacity.free for capacity in healthy}
    blocked: set[str] = set()
    for item in sorted(queue, key=lambda item: (item.submitted_at, item.id)):
        executors = [name for name in free if item.may_run(name)]
        if item.not_before > now or not executors:
            continue
        if item.brief:
            yield item, max(executors, key=lambda name: free[name])
            continue
        open_ = [name for name in executors if name not in blocked]
        fits = [name for name in open_ if configs[name].workers_for(item.requested) <= free[name]]
        if fits:
            # Prefer the executor that grants most of the requested workers; among equals, the one with most free.
            chosen = max(fits, key=lambda name: (configs[name].workers_for(item.requested), free[name]))
            free[chosen] -= configs[chosen].workers_for(item.requested)
            yield item, chosen
        else:
            blocked.update(executors)


def why_waiting(position: int, requested: int, pause: float, reason: str | None) -> str:
    """Describe what a queued simulation waits for; ``pause``: seconds to the next attempt, ``reason``: of the last."""
    if pause > 0 and reason is not None:
        return f"tried again in {pause:.0f} s; {reason}"
    if position > 1:
        return f"waits its turn: {position - 1} before it"
    return f"waits for {requested} free worker{'s' if requested > 1 else ''}"
