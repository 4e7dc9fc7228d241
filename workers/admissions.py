"""Admissions: which simulations are prepared, launched and resized in a pass, within the workers of each executor."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from common.errors import UnknownSimulation
from core.domain.scheduling.admission import FreeCapacity
from core.domain.scheduling.executor_config import ExecutorConfig
from core.domain.scheduling.preparation import Missing, Preparation
from core.domain.scheduling.preparation_queue import PreparationQueue, Unprepared
from core.domain.scheduling.reservations import ReservingLaunch, reserve
from core.domain.scheduling.states import State
from core.services.scheduling.dispatch import Dispatch
from core.services.scheduling.snapshots import ActiveSimulation, LiveLaunch, Snapshot
from core.services.scheduling.staging import Staging
from workers.managed_executor import ManagedExecutor


class Admissions:
    """Decides by snapshots, and writes the decisions. A simulation that is prepared holds no workers."""

    def __init__(self, dispatch: Dispatch, staging: Staging, executors: Mapping[str, ManagedExecutor]) -> None:
        self._dispatch = dispatch
        self._staging = staging
        self._executors = executors
        self._preparations = PreparationQueue()
        self._growing: dict[str, int] = {}  # workers that launches of an executor are about to get
        self._fixed: set[tuple[str, int]] = set()  # launches that cannot get this number of workers

    def snapshot(self) -> Snapshot:
        """Read a snapshot, which has all that launches have grown by calls that are over."""
        settled = [managed.name for managed in self._executors.values() if managed.idle]
        snapshot = self._dispatch.snapshot()
        for name in settled:
            self._growing.pop(name, None)
        return snapshot

    # -- sizes of running launches

    def sizes(self, config: ExecutorConfig, launches: Iterable[LiveLaunch], snapshot: Snapshot) -> Mapping[str, int]:
        """Return the new numbers of workers of an executor's launches, by id. They grow as far as workers are free."""
        free = spare = config.workers - snapshot.in_use(config.name)
        owners = snapshot.workers_in_use()
        sizes: dict[str, int] = {}
        for launch in launches:
            simulation = snapshot.active.get(launch.simulation)
            if simulation is None or simulation.ending or simulation.state is not State.RUNNING:
                continue
            left = owners.left(launch.owner, simulation.each)
            size = min(simulation.workers, launch.workers + max(0, free if left is None else min(free, left)))
            if size != launch.workers and (launch.id, size) not in self._fixed:
                sizes[launch.id] = size
                free -= max(0, size - launch.workers)
                owners.take(launch.owner, max(0, size - launch.workers), simulation.each)
        self._growing[config.name] = spare - free
        live = {launch.id for launch in snapshot.launches}
        self._fixed = {(id, size) for id, size in self._fixed if id in live}
        return sizes

    def cannot_resize(self, launch: LiveLaunch, size: int) -> None:
        """Record that a launch keeps its workers, so that none are kept free for it."""
        self._fixed.add((launch.id, size))

    # -- queued simulations

    def admit(self, snapshot: Snapshot, finished: Collection[str]) -> Iterator[ActiveSimulation]:
        """Admit queued simulations and yield those to launch; let jobs prepare those that cannot be launched at once.

        ``finished``: simulations whose launches need no workers any more.
        """
        free = {name: self._reserve(managed.config, snapshot, finished) for name, managed in self._executors.items()}
        if not snapshot.queue:
            return
        capacities = [
            FreeCapacity(managed.config, free[name], managed.accepts_launches and name not in snapshot.drained)
            for name, managed in self._executors.items()
        ]
        read: dict[str, ActiveSimulation] = {}

        def ready(id: str, executor: str) -> bool:
            try:
                read[id] = simulation = self._dispatch.simulation(id)
            except UnknownSimulation:  # cancelled and deleted since the snapshot
                return False
            if self._dispatch.end_unreadable(simulation):
                return False
            if (missing := self._missing(simulation, executor)) is None:
                return True
            self._preparations.put(Unprepared(simulation.submitted_at, id, executor, missing))
            return False

        for id, executor in snapshot.queue.admit(capacities, snapshot.now, ready, snapshot.workers_in_use(finished)):
            if self._dispatch.admit(simulation := read[id], executor):
                workers = self._executors[executor].config.workers_for(simulation.requested)
                if simulation.spec.gang is None:
                    workers = snapshot.limits.within(simulation.owner, workers, simulation.each)
                yield replace(simulation, state=State.LAUNCHING, executor=executor, workers=workers)
        self._prepare(snapshot)

    def _reserve(self, config: ExecutorConfig, snapshot: Snapshot, finished: Collection[str]) -> int:
        """Let launches of an executor lend their workers and get them back; return the workers that are free then."""
        launches = {
            launch.id: launch
            for launch in snapshot.launches
            if launch.executor == config.name and launch.simulation not in finished
        }
        reserved = reserve(
            (_reserving(launch, config) for launch in launches.values()),
            config.workers,
            snapshot.unlaunched(config.name) + self._growing.get(config.name, 0),
            wanted=bool(len(snapshot.queue)),
        )
        for id, reservation in reserved.changes.items():
            if not self._dispatch.reserve(launches[id], reservation):
                return 0  # it has begun meanwhile: the next pass decides again
        return reserved.free

    def _missing(self, simulation: ActiveSimulation, executor: str) -> Missing | None:
        """Return what has to be prepared before a simulation can be launched; None: nothing."""
        missing = self._staging.missing(simulation.id, simulation.provenance, simulation.files, executor)
        if not simulation.staging_failures:
            return missing
        job = Preparation.QUICK if missing is None else missing.job
        return Missing("what it needs is prepared, after an attempt that failed", job)

    def _prepare(self, snapshot: Snapshot) -> None:
        """Let jobs prepare queued simulations, as many as there is room for."""
        under_way = Counter(
            simulation.preparation or Preparation.QUICK
            for simulation in snapshot.active.values()
            if simulation.state is State.STAGING
        )
        for item in self._preparations.begin(under_way, snapshot.queue.prepared):
            with suppress(UnknownSimulation):
                self._dispatch.prepare(self._dispatch.simulation(item.id), item.executor, item.missing)
        if waiting := self._preparations.newly_waiting():
            self._dispatch.await_preparation(waiting)
            self._preparations.recorded(waiting)


def _reserving(launch: LiveLaunch, config: ExecutorConfig) -> ReservingLaunch:
    return ReservingLaunch(
        id=launch.id,
        submitted_at=launch.submitted_at,
        workers=launch.workers,
        reservation=launch.reservation,
        age=launch.age,
        lends=config.lends and launch.state is State.LAUNCHING and not launch.ending,
    )
