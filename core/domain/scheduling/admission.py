"""Admission: which queued simulations start now, and on which executor; values only, no I/O."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from core.domain.scheduling.executor_config import ExecutorConfig
from core.domain.scheduling.preparation import PREPARATION_SLOT, Preparation
from core.domain.scheduling.worker_limits import NO_OWNER, WorkersInUse, WorkLimits, WorkOwner
from core.domain.scheduling.worker_resources import CPU, MEMORY, ONE_WORKER, WorkerResources


@dataclass(frozen=True, slots=True)
class QueuedSimulation:
    """A queued simulation. ``requested``: workers, None for as many as the executor has; ``executor``: "" for any.

    ``brief``: a dry run, which bypasses the queue. ``eligible``: the executors that could run it; None: all.
    ``prepared``: a job has prepared it. ``owner``: whose limits of workers hold. ``fixed``: it needs all its workers.
    ``each``: what one of them has.
    """

    id: str
    requested: int | None
    submitted_at: float
    not_before: float = 0.0
    brief: bool = False
    executor: str = ""
    eligible: frozenset[str] | None = None
    prepared: bool = False
    owner: WorkOwner = NO_OWNER
    fixed: bool = False
    each: WorkerResources = field(default_factory=lambda: ONE_WORKER)


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """Free workers of an executor; an unhealthy executor has none and does not block what could run elsewhere."""

    config: ExecutorConfig
    free: int
    healthy: bool = True


@dataclass(frozen=True, slots=True)
class _Requirement:
    """What decides on which executors a simulation may run, whether it bypasses the queue, and which limits hold.

    ``devices``: names of those that it needs, so that a simulation that waits for them holds back none without.
    """

    executor: str
    eligible: frozenset[str] | None
    brief: bool
    owner: WorkOwner
    devices: frozenset[str]

    def executors(self, names: Iterable[str]) -> list[str]:
        """Return those of the executors on which it could run."""
        return [
            name for name in names if self.executor in {"", name} and (self.eligible is None or name in self.eligible)
        ]


_NO_DEVICES: frozenset[str] = frozenset()
#: Simulations that do not fit yet and are looked at, so that they are prepared by the time they fit.
AHEAD = 32
#: The most simulations that one decision sets aside; the rest is looked at in the next.
MOST_ASIDE = 256

#: Position in the queue: time of submission, then id.
_Position = tuple[float, str]
#: Returns whether a simulation could be launched on an executor at once.
Ready = Callable[[str, str], bool]


class AdmissionQueue:
    """Queued simulations, kept in order as they come and go, and the decision which of them start now.

    Simulations with equal requirements stand in one line, so a decision looks at the heads of the lines only: it costs
    what it admits, not what waits. Each owner has about as many lines as there are executors. Lists with binary search:
    an insertion moves 8 bytes for each simulation behind it, 20 microseconds at 100,000.
    """

    def __init__(self, queued: Iterable[QueuedSimulation] = ()) -> None:
        self._queued: dict[str, QueuedSimulation] = {}
        self._lines: dict[_Requirement, list[_Position]] = {}
        self._paused: list[_Position] = []  # in back-off: when each may be admitted, and its id
        self._seen_ready: set[str] = set()
        self._prepared: set[str] = set()
        for item in queued:
            self.put(item)

    def __len__(self) -> int:
        return len(self._queued)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids, in no order."""
        return iter(self._queued)

    def __contains__(self, id: object) -> bool:
        return id in self._queued

    def item(self, id: str) -> QueuedSimulation:
        """Return what is known of a queued simulation."""
        return self._queued[id]

    def put(self, item: QueuedSimulation) -> None:
        """Insert a simulation, or replace what is known of it."""
        self.discard(item.id)
        self._queued[item.id] = item
        if item.prepared:
            self._prepared.add(item.id)
        insort(self._paused, (item.not_before, item.id))

    def discard(self, id: str) -> None:
        """Remove a simulation, if it is queued."""
        item = self._queued.pop(id, None)
        if item is None:
            return
        self._seen_ready.discard(id)
        self._prepared.discard(id)
        if not _remove(self._paused, (item.not_before, id)):
            self._leave_line(item)

    def _leave_line(self, item: QueuedSimulation) -> None:
        """Remove a simulation from its line, unless it was set aside."""
        requirement = _requirement(item)
        line = self._lines.get(requirement)
        if line is not None and _remove(line, (item.submitted_at, item.id)) and not line:
            del self._lines[requirement]

    def admit(
        self,
        capacities: Iterable[FreeCapacity],
        now: float,
        ready: Ready = lambda id, executor: True,
        in_use: WorkersInUse | None = None,
    ) -> list[tuple[str, str]]:
        """Return (simulation, executor) to start now: first come first served, to the executor with most free workers.

        The head of the queue waits for capacity, and simulations that could run on the same executors wait behind it,
        so that many small simulations never starve a large one. A dry run (``brief``) bypasses the queue: it is one
        step long. The simulations stay queued until they are discarded.

        ``in_use``: the workers of owners. A simulation whose owner may have no more workers waits, with those of its
        owner behind it, and holds no other back. It gets fewer workers than it asks for where the limit is lower.

        A simulation that is not ``ready`` takes no workers and holds nobody back: it is set aside, until it is put
        into the queue again. The first AHEAD of those that wait for workers are asked too, once each.
        """
        self._resume(now)
        owners = in_use or WorkersInUse(WorkLimits())
        healthy = [capacity for capacity in capacities if capacity.healthy]
        configs: Mapping[str, ExecutorConfig] = {capacity.config.name: capacity.config for capacity in healthy}
        free = {capacity.config.name: capacity.free for capacity in healthy}
        blocked: set[str] = set()
        admitted: list[tuple[str, str]] = []
        aside: list[str] = []
        ahead = 0
        heads = [
            (line[0], 0, number, line, executors)
            for number, (requirement, line) in enumerate(self._lines.items())
            if (executors := requirement.executors(free))
        ]
        heapify(heads)  # `number` makes the order total
        while heads and len(aside) < MOST_ASIDE:
            (_, id), place, number, line, executors = heappop(heads)
            item = self._queued[id]
            # Prefer the executor that grants most of the requested workers; among equals, that with most free.
            workers = {name: configs[name].workers_for(item.requested) for name in executors}
            if not (item.brief or item.fixed):
                workers = {name: owners.limits.within(item.owner, count, item.each) for name, count in workers.items()}
            left = None if item.brief else owners.left(item.owner, item.each)
            if left is not None and left < min(workers.values()):
                if item.fixed and place + 1 < len(line):
                    heappush(heads, (line[place + 1], place + 1, number, line, executors))
                continue
            grants = {name: (count, free[name]) for name, count in workers.items()}
            if item.brief:
                fits = executors
            else:
                fits = [name for name in executors if name not in blocked and workers[name] <= free[name]]
            if fits:
                chosen = max(fits, key=(free if item.brief else grants).__getitem__)
                if not ready(id, chosen):
                    aside.append(id)
                else:
                    if not item.brief:
                        free[chosen] -= workers[chosen]
                        owners.take(item.owner, workers[chosen], item.each)
                    admitted.append((id, chosen))
            else:
                blocked.update(executors)
                ahead += 1
                if ahead > AHEAD:
                    continue
                if id not in self._seen_ready:
                    if ready(id, max(executors, key=grants.__getitem__)):
                        self._seen_ready.add(id)
                    else:
                        aside.append(id)
            if place + 1 < len(line):
                heappush(heads, (line[place + 1], place + 1, number, line, executors))
        for id in aside:
            self._leave_line(self._queued[id])
        return admitted

    @property
    def prepared(self) -> int:
        """Number of simulations that have been prepared and wait for workers."""
        return len(self._prepared)

    def _resume(self, now: float) -> None:
        """Let the simulations whose back-off is over stand in their lines again."""
        due = bisect_right(self._paused, now, key=lambda position: position[0])
        for _, id in self._paused[:due]:
            item = self._queued[id]
            insort(self._lines.setdefault(_requirement(item), []), (item.submitted_at, id))
        del self._paused[:due]


def _requirement(item: QueuedSimulation) -> _Requirement:
    return _Requirement(item.executor, item.eligible, item.brief, item.owner, _devices(item.each))


def _devices(each: WorkerResources) -> frozenset[str]:
    return _NO_DEVICES if len(each) == len(ONE_WORKER) else frozenset(each) - {CPU, MEMORY}


def _remove(positions: list[_Position], position: _Position) -> bool:
    """Remove a position from a sorted list; return whether it was there."""
    at = bisect_left(positions, position)
    if at == len(positions) or positions[at] != position:
        return False
    del positions[at]
    return True


def why_waiting(
    position: int, requested: int, pause: float, reason: str | None, preparation: Preparation | None = None
) -> str:
    """Describe what a queued simulation waits for; ``pause``: seconds to the next attempt, ``reason``: of the last."""
    if pause > 0 and reason is not None:
        return f"tried again in {pause:.0f} s; {reason}"
    if preparation is Preparation.WAITING:
        return PREPARATION_SLOT
    if position > 1:
        return f"waits its turn: {position - 1} before it"
    return f"waits for {requested} free worker{'s' if requested > 1 else ''}"
