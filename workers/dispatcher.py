"""Dispatcher: a reconciliation loop over simulations and launches. One leader acts; standby dispatchers wait."""

import fcntl
import logging
import os
import socket
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any

from common.errors import PlatformError
from core.domain.scheduling.due_jobs import due_job
from core.domain.scheduling.job_kinds import BY_NAME
from core.domain.scheduling.launches import LaunchStatus, Note, Phase
from core.domain.scheduling.states import State
from core.services.due_jobs import SWEEP, DueJobs
from core.services.scheduling.dispatch import Dispatch
from core.services.scheduling.programs import Programs
from core.services.scheduling.snapshots import ActiveSimulation, LiveLaunch, Snapshot
from core.services.service_groups import SchedulingServices
from workers import liveness
from workers.admissions import Admissions
from workers.dispatcher_metrics import DispatcherMetrics
from workers.executors.base import ActiveLaunch, KeepsWarmLaunches, Watched
from workers.leadership import Leadership
from workers.managed_executor import ManagedExecutor
from workers.submission_failures import COVERED, failure_of
from workers.usage_marks import UsageMarks

logger = logging.getLogger(__name__)

#: Seconds between two progress updates.
TICK = 0.5
#: Seconds for which an executor may not know a new launch before it counts as vanished.
GRACE = 15.0
#: Seconds before a simulation is launched again whose launch ended while the object store was away.
STORE_PAUSE = 10.0
#: Seconds between two attempts of a standby dispatcher to become the leader.
STANDBY = 1.0
#: Seconds by which the database's clock and the monotonic clock differ between two passes when it was set.
CLOCK_STEP = 1.0


class Dispatcher:
    """Reconciles simulations and launches. Every step is idempotent, so a crash between any two costs only time."""

    def __init__(
        self,
        services: SchedulingServices,
        dispatch: Dispatch,
        executors: Sequence[ManagedExecutor],
        *,
        run_dir: Path,
        ttl: float,
        interval: float,
        metrics: DispatcherMetrics | None = None,
    ) -> None:
        self._services = services
        self._dispatch = dispatch
        self._programs = Programs(services.leases)
        self._due_jobs = DueJobs(services.database)
        self._executors = {managed.name: managed for managed in executors}
        self._usage_marks = UsageMarks(dispatch)
        self._admissions = Admissions(dispatch, services.staging, self._executors)
        self._run_dir = run_dir
        self._ttl = ttl
        self._interval = interval
        self.metrics = metrics or DispatcherMetrics()
        self._ticked_at = 0.0
        self._passed_at = 0.0
        self._clocks: tuple[float, float] | None = None  # the monotonic clock and the database's in the last pass
        self._swept_at = float("-inf")
        self._expire_from = 0.0
        self._enqueued_at: dict[tuple[str, str], float] = {}
        self._reported: Mapping[str, Any] = {}
        self._working = False

    def run(self, stop: Event) -> None:
        """Wait for leadership, then run passes until ``stop``. A failed pass is logged, not fatal."""
        self._run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self._run_dir / "dispatch.lock", "w") as lock:
            if self._locked(lock, stop):
                with Leadership(self._services.database, f"{socket.gethostname()}:{os.getpid()}") as leadership:
                    self._run(leadership, stop)

    def _run(self, leadership: Leadership, stop: Event) -> None:
        while not stop.is_set() and not self._leads(leadership):
            self._beat()
            stop.wait(STANDBY)
        for managed in self._executors.values():
            if isinstance(managed.executor, Watched):
                self._watch(managed.executor, stop)
        self._expire_from = time.monotonic() + self._ttl  # runners could not heartbeat meanwhile: give them a full term
        standing_by = False
        while not stop.is_set():
            try:
                if not self._leads(leadership):  # this process was stopped or starved, and another took over
                    if not standing_by:
                        logger.warning("another dispatcher leads; this dispatcher stands by")
                    standing_by = True
                    self._clocks = None  # the leader deals with steps of the clock
                    self.metrics.leads.set(0)
                    self._beat()
                    stop.wait(STANDBY)
                    continue
                standing_by = False
                self.metrics.leads.set(1)
                self.step()
                self.metrics.done.inc()
            except Exception:
                self.metrics.failed.inc()
                logger.exception("a pass of the dispatcher failed; next attempt in %s s", self._interval)
                stop.wait(self._interval)
            self._services.notifier.wait("dispatch", self._pause())

    def _watch(self, executor: Watched, stop: Event) -> None:
        """Let an executor wake the dispatcher when a launch changes; the executor is also polled."""
        wake = partial(self._services.notifier.wake, "dispatch")
        Thread(target=executor.watch, args=(wake, stop), name="watch", daemon=True).start()

    def _pause(self) -> float:
        return (
            TICK
            if self._working or not all(managed.accepts_launches for managed in self._executors.values())
            else self._interval
        )

    def _locked(self, lock: IO[str], stop: Event) -> bool:
        """Wait for this home's lock file, which is released even by kill -9; return False if stopped before."""
        while not stop.is_set():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                self._beat()
                stop.wait(0.2)
        return False

    def _beat(self) -> None:
        """Touch the liveness file."""
        liveness.record_iteration(self._run_dir / "dispatch.beat")

    def _leads(self, leadership: Leadership) -> bool:
        """Acquire or renew the leadership among the dispatchers of a PostgreSQL; return whether it is held.

        A former leader keeps its epoch, so that the writes of an executor's thread that is still at work are refused.
        """
        if self._services.database.embedded:
            return True
        epoch = leadership.take()
        if epoch is not None:
            self._dispatch.lead(epoch)
        return epoch is not None

    def step(self) -> None:
        """Run one pass: observe, decide, act."""
        now = time.monotonic()
        if now - self._passed_at > 2 * self._ttl:
            self._expire_from = now + self._ttl  # this process was stopped or starved, so runners may have been too
        self._passed_at = now
        snapshot = self._admissions.snapshot()
        if self._clock_was_set(time.monotonic(), snapshot.now):
            snapshot = self._admissions.snapshot()
        if snapshot.launches:
            self._services.store_health.problem()  # asks, so that the answer is there when a launch ends
        self._working = bool(snapshot.active or snapshot.queue)
        for managed in self._executors.values():
            self._visit(managed, snapshot)
        for launch in snapshot.launches:
            if launch.executor not in self._executors:
                reason = f"its executor {launch.executor} is no longer configured"
                self._evacuate(launch, reason, counted=False)
        self._report_health(snapshot)
        if now >= self._expire_from:
            self._expire(snapshot)
        self._services.leases.settle()
        launched = snapshot.launched
        running = [
            simulation
            for simulation in snapshot.active.values()
            if simulation.state is State.RUNNING and not simulation.ending
        ]
        unfinished = self._dispatch.unfinished([simulation.id for simulation in running])
        finished = {
            simulation.id
            for simulation in running
            if simulation.id not in unfinished and self._dispatch.close(simulation.id)
        }
        for simulation in snapshot.active.values():
            self._advance(simulation, snapshot, launched=simulation.id in launched, finished=simulation.id in finished)
        self._admit(snapshot, finished)
        if now - self._ticked_at >= TICK:
            self._ticked_at = now
            self._dispatch.tick(running, snapshot.now)
            self._tidy()
        self._beat()

    def _clock_was_set(self, now: float, database_now: float) -> bool:
        """Take a step of the database's clock since the last pass out of what is stored; return whether it was set."""
        step = 0.0
        if self._clocks is None:  # it may have been set while nobody led
            self._dispatch.rewind_clock()
        else:
            since = now - self._clocks[0]
            step = database_now - self._clocks[1] - since
            if abs(step) > CLOCK_STEP:
                logger.warning("the clock of the database (DATABASE_URL) was set by %+.0f s; times follow it", step)
                self._dispatch.shift_clock(step, since)
        self._clocks = now, database_now  # last: what could not be written is tried again by the next pass
        return abs(step) > CLOCK_STEP

    # -- launches

    def _visit(self, managed: ManagedExecutor, snapshot: Snapshot) -> None:
        """Observe an executor and reconcile its launches; evacuate them if it is lost."""
        launches = [launch for launch in snapshot.launches if launch.executor == managed.name]
        if managed.lost:
            reason = f"executor {managed.name} has not answered for {managed.config.grace:g} s: {managed.last_error}"
            for launch in launches:
                if self._evacuate(launch, reason):
                    managed.search_orphans_soon()  # it is removed once the executor answers again
        due = managed.orphan_search_due or self._due_warm_pool(managed, snapshot) is not None
        if (launches or due or not managed.healthy) and managed.may_be_called and managed.idle:
            sizes = self._admissions.sizes(managed.config, launches, snapshot)
            managed.do(lambda: self._tend(managed, launches, snapshot, sizes))

    def _tend(
        self,
        managed: ManagedExecutor,
        launches: Sequence[LiveLaunch],
        snapshot: Snapshot,
        sizes: Mapping[str, int],
    ) -> None:
        """Reconcile the launches of an executor that answers, cancel orphans there, and refill its warm pool."""
        statuses = managed.executor.observe([launch.id for launch in launches])
        managed.answered()
        present = [each for each in launches if _is_there(each, statuses)]
        self._usage_marks.record(managed.executor, present, statuses)
        for launch in launches:
            with _permission_errors_recorded(managed):
                status, simulation = statuses.get(launch.id), snapshot.active.get(launch.simulation)
                self._reconcile(managed, launch, status, simulation, sizes.get(launch.id))
        if managed.orphan_search_due:
            # Read now, not from the snapshot: a launch is inserted before it is submitted.
            for id in managed.executor.orphans(self._dispatch.living(managed.name)):
                logger.info("executor %s: launch %s is over; its processes are removed", managed.name, id)
                with _permission_errors_recorded(managed):
                    managed.executor.cancel(id)
            managed.orphans_searched()
        if (warm := self._due_warm_pool(managed, snapshot)) is not None:
            live = [launch for launch in self._dispatch.live_launches() if launch.executor == managed.name]
            at_work = {launch.id: ActiveLaunch(launch.simulation, launch.attempt, launch.workers) for launch in live}
            managed.refilled(warm.maintain_warm_pool(at_work))

    @staticmethod
    def _due_warm_pool(managed: ManagedExecutor, snapshot: Snapshot) -> KeepsWarmLaunches | None:
        """Return an executor whose warm pool is due to be refilled; that of a drained executor is not refilled."""
        return managed.due_warm_pool if managed.name not in snapshot.drained else None

    def _evacuate(self, launch: LiveLaunch, reason: str, *, counted: bool = True) -> bool:
        """Queue a launch's simulation again because its executor cannot be reached; return whether it was given up.

        Not while its runners still send heartbeats: they may reach the platform though the executor does not answer.
        """
        if launch.ending:
            self._dispatch.end_launch(launch)
        elif self._dispatch.heartbeating(launch):
            return False
        else:
            self._dispatch.requeue(launch, reason, counted=counted)
        return True

    def _report_health(self, snapshot: Snapshot) -> None:
        """Store each executor's health and load when they have changed."""
        health = {
            managed.name: {
                "kind": managed.config.kind,
                "workers": managed.config.workers,
                "in_use": snapshot.in_use(managed.name),
                "healthy": int(managed.healthy and managed.last_error is None),
                "last_error": managed.last_error,
            }
            for managed in self._executors.values()
        }
        if health != self._reported:
            self._dispatch.report_health(health)
            self._reported = health

    def _reconcile(
        self,
        managed: ManagedExecutor,
        launch: LiveLaunch,
        status: LaunchStatus | None,
        simulation: ActiveSimulation | None,
        size: int | None,
    ) -> None:
        """Reconcile a launch with what its executor observes of it. ``size``: its new number of workers, if any."""
        over = status is None or status.phase is Phase.ENDED
        if status is not None:
            self._dispatch.record_notes(launch, status.notes)
        if launch.ending:
            self._dispatch.end_launch(launch)  # first: if cancelling fails, the launch is an orphan and is found again
            managed.executor.cancel(launch.id)
        elif status is not None and status.hopeless and simulation is not None:
            self._dispatch.give_up(
                simulation, State.ERRORED, status.reason or "it cannot start on this executor", launch
            )
            managed.executor.cancel(launch.id)
        elif size is not None and not over:
            self._resize(managed, launch, size)
        elif simulation is not None and simulation.state is State.LAUNCHING and simulation.unattended and _runs(status):
            self._programs.began(launch.id)
        elif over and (status is not None or launch.age > GRACE):
            if launch.state is State.RUNNING and self._dispatch.close(launch.simulation):
                self._dispatch.end_launch(launch)
                managed.search_orphans_soon()
                return
            if simulation is not None and simulation.unattended and status is not None and status.exit is not None:
                self._programs.ended(launch.id, status.exit, status.reason, launch.age)
                return  # the next pass finds every task done
            reason = status.reason if status is not None and status.reason else "its processes vanished"
            logger.warning("launch %s ended early: %s", launch.id, reason)
            problem = self._services.store_health.problem() or self._dispatch.refused_results(launch.simulation)
            if problem is None:
                self._dispatch.requeue(launch, reason)
            else:  # without the store no launch gets its inputs or stores a result
                self._dispatch.requeue(launch, f"{reason}; {problem}", counted=False, pause=STORE_PAUSE)
            managed.executor.cancel(launch.id)

    def _resize(self, managed: ManagedExecutor, launch: LiveLaunch, workers: int) -> None:
        """Resize a launch to its simulation's number of workers; if the executor cannot, record a note and keep it."""
        try:
            managed.executor.resize(launch.id, workers)
        except PlatformError as error:
            message = error.detail or "It keeps its workers."
            self._dispatch.record_notes(launch, [Note(key=f"workers-{workers}", message=message)])
            self._admissions.cannot_resize(launch, workers)
        else:
            self._dispatch.resize(launch, workers)

    def _expire(self, snapshot: Snapshot) -> None:
        for id in self._services.leases.expire():
            if (simulation := snapshot.active.get(id)) is not None:
                self._dispatch.give_up(simulation, State.ERRORED, "its runners stopped sending heartbeats too often")

    # -- simulations

    def _advance(self, simulation: ActiveSimulation, snapshot: Snapshot, *, launched: bool, finished: bool) -> None:
        """Do what is due for a simulation; ``finished``: it runs, but every task has a result."""
        claimed = simulation.id in snapshot.claimed
        running = simulation.state is State.RUNNING and not simulation.ending
        kind = due_job(
            simulation.state, simulation.outcome, simulation.preparation, launched=launched, finished=finished
        )
        if not simulation.ending and self._dispatch.end_unreadable(simulation):
            return
        if kind is not None:
            if not claimed:
                self._enqueue_unclaimed(kind, simulation.id)
        elif running:
            if _late(simulation, snapshot.now):
                self._dispatch.give_up(
                    simulation, State.FAILED, f"not done within its timeout of {simulation.spec.timeout:g} s"
                )
            elif not launched and not claimed:
                self._dispatch.requeue_stranded(simulation)
        elif simulation.state is State.LAUNCHING and not launched:
            self._launch(simulation)

    def _enqueue_unclaimed(self, kind: str, id: str) -> None:
        """Enqueue a job, and again every two seconds while no worker has claimed it."""
        now = time.monotonic()
        if now - self._enqueued_at.get((kind, id), -10.0) >= 2.0:
            self._enqueued_at[kind, id] = now
            self._services.notifier.enqueue(kind, id)

    def _launch(self, simulation: ActiveSimulation) -> None:
        managed = self._executors.get(simulation.executor)
        if managed is None:  # it is no longer configured
            self._dispatch.move(
                simulation.id,
                State.LAUNCHING,
                State.QUEUED,
                reason=f"its executor {simulation.executor} is no longer configured",
            )
            return
        managed.do(lambda: self._submit(managed, simulation))

    def _submit(self, managed: ManagedExecutor, simulation: ActiveSimulation) -> None:
        waiting = (
            managed.executor.take_warm_launch if isinstance(managed.executor, KeepsWarmLaunches) else lambda _: None
        )
        launch = self._dispatch.launch(simulation, waiting)
        if launch is None:
            return
        if not launch.token:  # a warm launch: only its runners know the token
            managed.refill_soon()
        live_launch = LiveLaunch(
            id=launch.id,
            simulation=simulation.id,
            attempt=simulation.attempt,
            executor=managed.name,
            workers=launch.workers,
            state=State.LAUNCHING,
            age=0.0,
        )
        try:
            managed.executor.submit(launch)
        except COVERED as error:
            self._submission_failed(managed, simulation, live_launch, error)
        else:
            managed.launch_accepted()

    def _submission_failed(
        self, managed: ManagedExecutor, simulation: ActiveSimulation, launch: LiveLaunch, error: Exception
    ) -> None:
        failure = failure_of(error, simulation.attempt)
        reason = failure.reason.format(error=error, executor=managed.name)
        if failure.pauses_executor:
            managed.launch_refused(error)
        if failure.requeue:
            self._dispatch.requeue(launch, reason, counted=failure.counted, pause=failure.pause, staged=failure.staged)
        else:
            self._dispatch.give_up(simulation, State.FAILED, reason, launch)

    def _admit(self, snapshot: Snapshot, finished: Collection[str]) -> None:
        """Admit queued simulations; launches of ``finished`` ones need no workers any more and end by themselves.

        The snapshot is read again only if this pass has freed workers or queued a simulation again.
        """
        if self._dispatch.outdated:
            snapshot = self._dispatch.snapshot()
        for simulation in self._admissions.admit(snapshot, finished):
            self._launch(simulation)

    def _tidy(self) -> None:
        """Enqueue the jobs of datasets, of ended and of deleted simulations, and `sweep`."""
        if time.monotonic() - self._swept_at >= BY_NAME["sweep"].period:
            self._swept_at = time.monotonic()
            self._services.notifier.enqueue("sweep", SWEEP)
        for kind, ids in self._due_jobs.beside_admitted().items():
            for id in ids:
                self._enqueue_unclaimed(kind, id)
        for job in [job for job, at in self._enqueued_at.items() if time.monotonic() - at > 60.0]:
            del self._enqueued_at[job]


def _is_there(launch: LiveLaunch, statuses: Mapping[str, LaunchStatus]) -> bool:
    """Return whether a launch has processes, or may have: an executor may not show a new one yet."""
    status = statuses.get(launch.id)
    return launch.age <= GRACE if status is None else status.phase is not Phase.ENDED


@contextmanager
def _permission_errors_recorded(managed: ManagedExecutor) -> Iterator[None]:
    """Log a PermissionError of one launch and record it as the executor's error; other launches go on."""
    try:
        yield
    except PermissionError as error:
        logger.warning("executor %s: %s", managed.name, error)
        managed.last_error = str(error)[:500]


def _late(simulation: ActiveSimulation, now: float) -> bool:
    """Return whether a simulation runs for longer than its timeout."""
    return (
        simulation.spec.timeout is not None
        and simulation.started_at is not None
        and now - simulation.started_at > simulation.spec.timeout
    )


def _runs(status: LaunchStatus | None) -> bool:
    return status is not None and status.phase is Phase.RUNNING
