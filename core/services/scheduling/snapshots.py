"""Snapshots for the dispatcher: queue, active simulations and live launches, kept up to date from a log of changes."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from common.errors import UnreadableRow
from core.domain.access.scopes import PLATFORM
from core.domain.scheduling.admission import AdmissionQueue, QueuedSimulation
from core.domain.scheduling.eligibility import Eligibility
from core.domain.scheduling.launches import Gang
from core.domain.scheduling.preparation import Preparation
from core.domain.scheduling.reservations import IN_USE, Reservation
from core.domain.scheduling.states import LIVE, State
from core.domain.scheduling.worker_limits import NO_OWNER, WorkersInUse, WorkLimits, WorkOwner
from core.domain.scheduling.worker_resources import ONE_WORKER, WorkerResources
from core.domain.submissions.packed_files import PackedFiles, packed_files_of
from core.domain.submissions.provenance import Provenance, provenance_of
from core.domain.submissions.submission_spec import SubmissionSpec, spec_of
from core.store import executors, launches, quotas, scheduling_changes, simulations
from core.store.database import Connection, Database

#: Seconds between two comparisons with all rows, for writers that do not log their changes (an earlier version).
VERIFY_INTERVAL = 30.0
#: Rows per query.
PAGE = 500


@dataclass(frozen=True)
class ActiveSimulation:
    """A simulation that has not ended, as the dispatcher sees it. Its documents are decoded once they are read."""

    id: str
    state: State
    attempt: int
    executor: str  # empty while it is queued
    eligible: frozenset[str] | None  # the executors that could run it; None: all
    requested: int | None  # workers; None: as many as the executor has
    workers: int  # granted on its executor
    submitted_at: float
    started_at: float | None
    stored_provenance: str
    stored_spec: str
    owner: WorkOwner
    each: WorkerResources  # of one worker
    stored_files: str | None
    outcome: State | None = None  # the state in which it ends, once that is decided
    staging_failures: int = 0  # in a row, because a store did not answer; then it is staged, whatever is ready
    preparation: Preparation | None = None

    @cached_property
    def problem(self) -> str | None:
        """Why a document of it cannot be read, so that it cannot run; None: all can be read."""
        try:
            _ = self.spec, self.provenance, self.files
        except UnreadableRow as error:
            return error.detail
        return None

    @cached_property
    def spec(self) -> SubmissionSpec:
        """Its spec, read once it is needed."""
        return spec_of(self.stored_spec)

    @cached_property
    def provenance(self) -> Provenance:
        """Its provenance, read once it is needed."""
        return provenance_of(self.stored_provenance)

    @cached_property
    def files(self) -> PackedFiles:
        """Its files that were packed for executors that share no folder, read once they are needed."""
        return packed_files_of(self.stored_files)

    @property
    def ending(self) -> bool:
        """Whether only its summary and its final state are missing, once its launch is over."""
        return self.outcome is not None or self.state is State.CANCELLING

    @property
    def unattended(self) -> bool:
        """Whether its launches have no runner: a gang started by an operator, or in its own image."""
        if self.problem is not None or self.spec.gang is None:
            return False
        return not msgspec.convert(self.spec.gang, Gang).attended


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
    ending: bool = False  # its simulation has ended, or its end has been decided
    reservation: Reservation = Reservation.HELD
    submitted_at: float = 0.0  # its simulation
    owner: WorkOwner = NO_OWNER  # of its simulation
    each: WorkerResources = field(default_factory=lambda: ONE_WORKER)  # of one worker


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that the dispatcher's decisions depend on, read at ``now``.

    ``active``: the simulations between admission and end, by id. ``claimed``: those of them that a job works on.
    ``drained``: names of executors that are given no simulations. ``limits``: of the workers of projects and users.
    ``queue`` is shared between snapshots: it stands as it was read last.
    """

    now: float
    queue: AdmissionQueue
    active: Mapping[str, ActiveSimulation]
    claimed: frozenset[str]
    launches: tuple[LiveLaunch, ...]
    drained: frozenset[str] = frozenset()
    limits: WorkLimits = field(default_factory=WorkLimits)

    def workers_in_use(self, finished: Collection[str] = ()) -> WorkersInUse:
        """Return the workers that owners have, on all executors; ``finished``: as for `in_use`."""
        if not self.limits:
            return WorkersInUse(self.limits)
        launched = [
            (launch.owner, launch.workers, launch.each)
            for launch in self.launches
            if launch.reservation in IN_USE and launch.simulation not in finished
        ]
        return WorkersInUse(
            self.limits, [*launched, *((one.owner, one.workers, one.each) for one in self._waiting_launches())]
        )

    @property
    def launched(self) -> frozenset[str]:
        """Simulations with a live launch."""
        return frozenset(launch.simulation for launch in self.launches)

    def in_use(self, executor: str, finished: Collection[str] = ()) -> int:
        """Workers in use on an executor: by launches, and by simulations that are admitted but not yet launched.

        Simulations that are prepared hold none, nor do launches that lend them. ``finished``: simulations whose
        launches do not count, because only their summary is missing.
        """
        launches = [launch for launch in self.launches if launch.executor == executor and launch.reservation in IN_USE]
        return self.unlaunched(executor) + sum(
            launch.workers for launch in launches if launch.simulation not in finished
        )

    def unlaunched(self, executor: str) -> int:
        """Workers of simulations that are admitted to an executor but not yet launched."""
        return sum(simulation.workers for simulation in self._waiting_launches() if simulation.executor == executor)

    def _waiting_launches(self) -> Iterator[ActiveSimulation]:
        launched = self.launched
        for simulation in self.active.values():
            if simulation.state in LIVE and not simulation.ending and simulation.id not in launched:
                yield simulation


class SnapshotReader:
    """Reads snapshots at the cost of what changed: of the rows only those that the log of changes names.

    The log is emptied by the caller, once it has a snapshot: a crash between the two costs a second read. Until then,
    entries that a snapshot covers are known by their numbers; SQLite gives the number of a deleted entry to a later
    one. At the start, and every VERIFY_INTERVAL seconds, the ids and states of all rows are compared.
    """

    def __init__(self, database: Database, eligibility: Eligibility) -> None:
        self._database = database
        self._executor_configs = eligibility.executor_configs
        self._eligibility = eligibility
        self._queue = AdmissionQueue()
        self._active: dict[str, ActiveSimulation] = {}
        self._verify_at = float("-inf")
        self._covered: set[int] = set()
        self._limits = WorkLimits()

    def reset(self) -> None:
        """Forget everything: another process has emptied the log meanwhile."""
        self._queue = AdmissionQueue()
        self._active = {}
        self._verify_at = float("-inf")
        self._covered = set()

    @property
    def covered(self) -> int:
        """Number of present log entries that a snapshot covers."""
        return len(self._covered)

    def forget_covered(self) -> list[int]:
        """Return the numbers of the log entries that a snapshot covers; the caller deletes these entries now."""
        numbers, self._covered = sorted(self._covered), set()
        return numbers

    def read(self, moment: float) -> Snapshot:
        """Return a snapshot; ``moment`` on the monotonic clock, in seconds."""
        with self._database.read() as c:
            # The log first: a row that changes after this query is read with the change or is in the next log.
            changes = scheduling_changes.entries(c)
            changed = {id for number, id in changes if number not in self._covered}
            verify = moment >= self._verify_at
            if verify:
                changed |= self._differing(c)
            if (limits := quotas.worker_limits(c)) != self._limits:
                self._limits = limits
                changed |= self._active.keys()  # their numbers of workers follow
            self._read_again(c, changed)
            now = self._database.now(c)
            snapshot = Snapshot(
                now=now,
                queue=self._queue,
                active=dict(self._active),
                claimed=frozenset(simulations.claimed(c, now)),
                launches=self._live_launches(c, now),
                drained=frozenset(executors.drains(c)),
                limits=self._limits,
            )
        self._covered = {number for number, _ in changes}
        if verify:
            self._verify_at = moment + VERIFY_INTERVAL
        return snapshot

    def simulation(self, id: str) -> ActiveSimulation:
        """Return a simulation as it stands in SQL; raise UnknownSimulation if it has been deleted."""
        with self._database.read() as c:
            return self._active_simulation(simulations.find(c, PLATFORM, id))

    def live_launches(self) -> tuple[LiveLaunch, ...]:
        """Return the launches that are not over, as of now."""
        with self._database.read() as c:
            return self._live_launches(c, self._database.now(c))

    @staticmethod
    def _live_launches(c: Connection, now: float) -> tuple[LiveLaunch, ...]:
        return tuple(
            LiveLaunch(
                id=row.id,
                simulation=row.simulation_id,
                attempt=row.attempt,
                executor=row.executor,
                workers=(launched := _resources_of(row)).cpu,
                each=launched.each,
                state=State(row.simulation_state),
                age=now - row.created_at,
                ending=not row.accepts_results,
                reservation=Reservation(row.reservation),
                submitted_at=row.submitted_at,
                owner=WorkOwner(row.project, row.submitted_by),
            )
            for row in launches.live(c)
        )

    def _differing(self, c: Connection) -> set[str]:
        """Return the simulations that are known in another state than their rows have."""
        states = simulations.unended_states(c)
        known = {id: State.QUEUED.value for id in self._queue}
        known |= {id: simulation.state.value for id, simulation in self._active.items()}
        return {id for id, _ in states.items() ^ known.items()}

    def _read_again(self, c: Connection, ids: Iterable[str]) -> None:
        for page in _pages(sorted(ids)):
            for id in page:
                self._queue.discard(id)
                self._active.pop(id, None)
            for queued in simulations.queued(c, page):
                self._queue.put(self._queued_simulation(queued))
            for row in simulations.active(c, page):  # it may have left the queue since the query before
                self._queue.discard(row.id)
                self._active[row.id] = self._active_simulation(row)

    def _queued_simulation(self, row: simulations.QueuedRow) -> QueuedSimulation:
        spec = _readable_spec(row.spec)
        requested = spec.requested_workers(dry_run=bool(row.dry_run))
        return QueuedSimulation(
            id=row.id,
            requested=requested,
            submitted_at=row.created_at,
            not_before=row.not_before,
            brief=bool(row.dry_run),
            executor=spec.executor,
            eligible=self._eligibility.executors(spec.placement or {}, spec.gang),
            prepared=row.preparation == Preparation.DONE,
            owner=WorkOwner(row.project, row.submitted_by),
            fixed=spec.gang is not None,
            each=spec.worker_resources,
        )

    def _active_simulation(self, row: simulations.SimulationRow) -> ActiveSimulation:
        spec = _readable_spec(row.spec)
        requested = spec.requested_workers(dry_run=bool(row.dry_run))
        executor = row.executor or ""
        if State(row.state) is State.QUEUED or executor not in self._executor_configs:
            executor = ""
        owner, each = WorkOwner(row.project, row.submitted_by), spec.worker_resources
        workers = self._executor_configs[executor].workers_for(requested) if executor else 1
        return ActiveSimulation(
            id=row.id,
            state=State(row.state),
            attempt=row.attempt,
            executor=executor,
            requested=requested,
            workers=workers if spec.gang is not None else self._limits.within(owner, workers, each),
            submitted_at=row.created_at,
            started_at=row.started_at,
            eligible=self._eligibility.executors(spec.placement or {}, spec.gang),
            stored_provenance=row.provenance,
            stored_spec=row.spec,
            owner=owner,
            each=each,
            stored_files=row.bundle,
            outcome=State(row.outcome) if row.outcome else None,
            staging_failures=row.staging_failures,
            preparation=Preparation(row.preparation) if row.preparation else None,
        )


def _readable_spec(text: str) -> SubmissionSpec:
    """Return a spec; an empty one in place of one that cannot be read, whose simulation ends once it is looked at."""
    try:
        return spec_of(text)
    except UnreadableRow:
        return SubmissionSpec()


def _resources_of(row: launches.LaunchRow) -> launches.LaunchedResources:
    """Return the resources of a launch; if its row cannot be read, one worker."""
    try:
        return row.launched
    except UnreadableRow:
        return launches.LaunchedResources()


def _pages(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(ids), PAGE):
        yield ids[at : at + PAGE]
