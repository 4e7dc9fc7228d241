"""Reads and writes of the dispatcher: queue, launches, closing of stages, progress. Its loop is in workers/."""

import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from common.backoff import RetryPolicy
from common.errors import Conflict, NotAllowed, TrustedNotAllowed, UnreadableRow
from common.ids import hashed, new_token
from core.domain.access.scopes import PLATFORM
from core.domain.results.outcomes import too_many
from core.domain.results.score import Score
from core.domain.scheduling.eligibility import Eligibility
from core.domain.scheduling.executor_config import ExecutorConfig
from core.domain.scheduling.launches import Gang, Launch, Note, Placement, WarmLaunch
from core.domain.scheduling.permissions import require_allowed
from core.domain.scheduling.preparation import Missing, Preparation
from core.domain.scheduling.reservations import Reservation
from core.domain.scheduling.states import LIVE, State
from core.domain.usage.granted_resources import GrantedResources, WarmGrant
from core.notifications.notifier import Notifier
from core.services.datasets.catalogue import played
from core.services.scheduling.model_environments import locked
from core.services.scheduling.progress import Progress
from core.services.scheduling.snapshots import ActiveSimulation, LiveLaunch, Snapshot, SnapshotReader
from core.services.uploads.models import key_of
from core.store import (
    clock_steps,
    events,
    executors,
    launches,
    leases,
    results,
    scheduling_changes,
    simulations,
    usage_intervals,
)
from core.store.database import Connection, Database
from core.store.leaders import holds
from datasets.catalogue.never_values import never_values
from datasets.versions import scenario_folder

T = TypeVar("T")


logger = logging.getLogger(__name__)

#: Seconds between two deletions of log entries that snapshots cover, and their number from which none is waited for.
ACKNOWLEDGE_INTERVAL, ACKNOWLEDGE_AT_ONCE = 0.5, 100
#: What is said of a launch when its reservation becomes this.
RESERVATION_MESSAGES: Mapping[Reservation, str] = {
    Reservation.LENT: "its model is being loaded; others may use its workers meanwhile",
}
#: Attempts in a row without a new result after which the simulation ends as ERRORED.
MAX_BARREN_ATTEMPTS = 8
#: Retries of a simulation whose attempts bring no result.
BARREN = RetryPolicy(first=0.5, longest=30.0)


class Dispatch:
    """The dispatcher's reads and writes. Every write checks that this dispatcher still leads.

    ``trusted``: whether the operator allows trusted runs at the moment.
    """

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        *,
        executor_configs: Sequence[ExecutorConfig],
        runner_api_url: str,
        trusted: bool = True,
    ) -> None:
        self._trusted = trusted
        self._database = database
        self._notifier = notifier
        eligibility = Eligibility(executor_configs)
        self._executor_configs = eligibility.executor_configs
        self._url = runner_api_url
        self._snapshots = SnapshotReader(database, eligibility)
        self.epoch: int | None = None
        #: Whether a launch has ended, or a simulation has been queued again, since the last snapshot.
        self.outdated = False
        self._acknowledge_at = 0.0
        self._progress: dict[str, Progress] = {}
        self._noted: dict[str, set[str]] = {}

    def _write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        def checked(c: Connection) -> T:
            if self.epoch is not None and not holds(c, "dispatch", self.epoch):
                raise Conflict("Another dispatcher leads now.")
            return work(c)

        return self._database.write(checked, durable=durable)

    def lead(self, epoch: int | None) -> None:
        """Take over with a leader's epoch; None: leadership is held by other means."""
        if epoch != self.epoch:
            self._snapshots.reset()
            self._acknowledge_at = 0.0
        self.epoch = epoch

    def rewind_clock(self) -> None:
        """Shorten claims, leases and pauses that a clock which was set back would keep from expiring."""
        self._write(lambda c: clock_steps.rewind(c, self._database.now(c)))

    def shift_clock(self, step: float, since: float) -> None:
        """Take a step of the database's clock out of what was stored; ``since``: seconds since it was last read."""
        self._write(lambda c: clock_steps.shift(c, step, self._database.now(c), since))
        self._snapshots.reset()

    def snapshot(self) -> Snapshot:
        """Read the queue, the simulations at work and the live launches, as they have changed."""
        self.outdated = False
        moment = time.monotonic()
        snapshot = self._snapshots.read(moment)
        if moment >= self._acknowledge_at or self._snapshots.covered > ACKNOWLEDGE_AT_ONCE:
            self._acknowledge_at = moment + ACKNOWLEDGE_INTERVAL
            self._acknowledge()
        return snapshot

    def _acknowledge(self) -> None:
        """Delete the entries of the log of changes that snapshots cover: in groups, since each deletion is a commit."""
        if changes := self._snapshots.forget_covered():
            self._write(lambda c: scheduling_changes.acknowledge(c, changes), durable=False)

    def live_launches(self) -> tuple[LiveLaunch, ...]:
        """Return the launches that are not over, as of now."""
        return self._snapshots.live_launches()

    def simulation(self, id: str) -> ActiveSimulation:
        """Return a simulation as it stands in SQL; raise UnknownSimulation if it has been deleted."""
        return self._snapshots.simulation(id)

    def end_unreadable(self, simulation: ActiveSimulation) -> bool:
        """Return whether a document of a simulation cannot be read. Such a simulation ends, and holds up no other."""
        if simulation.problem is None:
            return False
        if not simulation.ending:
            logger.error("simulation %s ends: %s", simulation.id, simulation.problem)
            self.give_up(simulation, State.ERRORED, simulation.problem)
        return True

    def _refused(self, simulation: ActiveSimulation, executor: str) -> bool:
        """Return whether the operator does not permit a simulation on an executor (any more), or it cannot be read.

        If another executor permits it, an admitted simulation is queued again; otherwise the simulation ends.
        """
        if self.end_unreadable(simulation):
            return True
        if simulation.provenance.play.trusted and not self._trusted:  # allowed when it was submitted
            self.give_up(simulation, State.ERRORED, str(TrustedNotAllowed()))
            return True
        config = self._executor_configs[executor]
        try:
            require_allowed([config], simulation.spec.placement or {}, simulation.spec.gang)
        except NotAllowed as error:
            if simulation.eligible is not None and executor not in simulation.eligible:
                self.move(simulation.id, State.LAUNCHING, State.QUEUED, reason=error.detail)
            else:
                self.give_up(simulation, State.ERRORED, error.detail or "an option is not allowed")
            return True
        return False

    def move(self, id: str, current: State, following: State, **changes: object) -> bool:
        """Change a simulation's state; False if it has left the state ``current``."""

        def steps(c: Connection) -> None:
            simulations.move(c, id, current, following, self._database.now(c), **changes)

        if not self._wrote(id, steps):
            return False
        self.outdated = True
        return True

    def prepare(self, simulation: ActiveSimulation, executor: str, missing: Missing) -> bool:
        """Let a job prepare what a queued simulation lacks for an executor; False if it is no longer queued.

        The simulation ends instead if the executor's allow-list was shortened since it was submitted.
        """
        changes = {"executor": executor, "preparation": missing.job.value, "reason": None}

        def steps(c: Connection) -> None:
            now = self._database.now(c)
            simulations.move(c, simulation.id, State.QUEUED, State.STAGING, now, **changes)
            events.say(c, simulation.id, "staging", {"what": "missing", "message": missing.message}, now)

        if self._refused(simulation, executor) or not self._wrote(simulation.id, steps):
            return False
        self._notifier.enqueue(missing.job.value, simulation.id)
        return True

    def await_preparation(self, ids: Sequence[str]) -> None:
        """Record that queued simulations wait until a job may prepare them."""
        self._write(lambda c: simulations.await_preparation(c, ids), durable=False)

    def admit(self, simulation: ActiveSimulation, executor: str) -> bool:
        """Admit a queued simulation that is prepared to an executor with free workers; False if it has left the queue.

        The simulation ends instead if the executor's allow-list was shortened since it was submitted.
        """

        def steps(c: Connection) -> None:
            if executors.is_drained(c, executor):  # since the snapshot
                raise Conflict(f"Executor {executor} is drained; simulation {simulation.id} stays queued.")
            now, current = self._database.now(c), State.QUEUED
            changes = {"executor": executor, "reason": None}
            if simulation.preparation is not Preparation.DONE:  # nothing was missing: it is staged in no time
                simulations.move(c, simulation.id, current, State.STAGING, now, **changes)
                current = State.STAGING
            simulations.move(c, simulation.id, current, State.LAUNCHING, now, **changes, preparation=None)

        return not self._refused(simulation, executor) and self._wrote(simulation.id, steps)

    def _wrote(self, id: str, steps: Callable[[Connection], None]) -> bool:
        """Change a simulation's state; False if it has another state meanwhile."""
        try:
            self._write(steps)
        except Conflict as error:
            logger.info("%s", error.detail)
            return False
        self._notifier.publish(id)
        return True

    def launch(
        self, simulation: ActiveSimulation, offer: Callable[[Launch], WarmLaunch | None] = lambda _: None
    ) -> Launch | None:
        """Insert a launch and return it with its token (stored as a hash); it commits before the executor is called.

        ``offer`` may return a matching warm launch: then the launch gets its id, and the returned token is empty. None
        if the simulation has a launch already, has left LAUNCHING, or is ended because an allow-list was shortened.
        """
        if self._refused(simulation, simulation.executor):
            return None
        launch = self._describe(simulation)
        offered = offer(launch)
        model = {"key": launch.model_key, "digest": launch.model_digest, "size": launch.model_size}
        play = simulation.files.play
        # Bundles that a runner without a shared folder downloads through the runner API.
        files = {"model": model} | ({"play": msgspec.to_builtins(play)} if play is not None else {})

        def add(c: Connection) -> tuple[str, bool] | None:
            if simulations.find(c, PLATFORM, simulation.id).state != State.LAUNCHING or launches.at_work(
                c, simulation.id
            ):
                return None
            # A warm launch may be offered twice, e.g. by the previous dispatcher: then start a new launch.
            warm = offered if offered is not None and not launches.known(c, [offered.id]) else None
            launch_id = (
                warm.id
                if warm is not None
                else f"{simulation.id}x{simulation.attempt}x{launches.tries(c, simulation.id)}"
            )
            _, done, _ = simulations.counts(c, simulation.id)
            resources = {"cpu": simulation.workers, "each": dict(simulation.each), "done": done, "files": files}
            launches.add(
                c,
                launch_id,
                self._database.now(c),
                {
                    "simulation_id": simulation.id,
                    "attempt": simulation.attempt,
                    "executor": simulation.executor,
                    "token_hash": warm.token_hash if warm is not None else hashed(launch.token),
                    "resources": json.dumps(resources),
                    "state": "live",
                },
                GrantedResources.of_placement(simulation.workers, launch.placement),
            )
            return launch_id, warm is not None

        written = self._write(add)
        if written is None:
            return None
        id, is_warm = written
        if not is_warm:
            return replace(launch, id=id)
        self._notifier.publish(id)  # wakes its waiting runners
        return replace(launch, id=id, token="")

    def _describe(self, simulation: ActiveSimulation) -> Launch:
        provenance, files = simulation.provenance, simulation.files
        model, dataset = provenance.played_model, provenance.dataset
        return Launch(
            id="",
            simulation_id=simulation.id,
            attempt=simulation.attempt,
            url=self._url,
            workers=simulation.workers,
            runtime=model.runtime,
            format=model.format,
            dataset=dataset.base.name,
            version=dataset.base.version,
            environment=locked(provenance) or "",
            trusted=provenance.play.trusted,
            play=scenario_folder.folder_name(dataset.digest, dataset.base.digest),
            model_digest=model.digest,
            model_key=key_of(model.digest),
            model_size=files.model_size or 0,
            token=new_token(),
            project=simulation.owner.project,
            play_key=files.play.key if files.play else "",
            play_digest=files.play.digest if files.play else "",
            play_size=files.play.size if files.play else 0,
            gang=msgspec.convert(simulation.spec.gang, Gang) if simulation.spec.gang else None,
            placement=msgspec.convert(simulation.spec.placement or {}, Placement),
            timeout=simulation.spec.timeout,
        )

    def heartbeating(self, launch: LiveLaunch) -> bool:
        """Return whether a runner of a launch holds a live lease, whatever its executor reports."""
        with self._database.read() as c:
            return leases.heartbeating(c, launch.simulation, launch.id, self._database.now(c))

    def refused_results(self, id: str) -> str | None:
        """Return why the store refuses a simulation's results (`StorageNotes`), None if it does not.

        Progress after the note shows that others were stored, though no process has noted that.
        """
        with self._database.read() as c:
            newest = events.last_of_types(c, id, ("storage", "progress"))
        if newest is None or newest[0] != "storage" or newest[1]["stored"]:
            return None
        return str(newest[1]["message"])

    def living(self, executor: str) -> set[str]:
        """Return the ids of an executor's live launches, as of now."""
        with self._database.read() as c:
            return launches.living(c, executor)

    def record_notes(self, launch: LiveLaunch, notes: Iterable[Note]) -> None:
        """Write an executor's notes on a launch to its simulation's events, each note once."""
        notes = list(notes)
        if not notes:
            return
        noted = self._noted.get(launch.id)
        if noted is None:  # the previous dispatcher may have written some
            with self._database.read() as c:
                bodies = events.bodies(c, launch.simulation, "launch")
            noted = self._noted[launch.id] = {str(body["key"]) for body in bodies if body["launch"] == launch.id}
        fresh = [note for note in notes if note.key not in noted]

        def write(c: Connection) -> None:
            for note in fresh:
                body = {"launch": launch.id, "executor": launch.executor, "key": note.key, "message": note.message}
                events.say(c, launch.simulation, "launch", body, self._database.now(c))

        if fresh:
            self._write(write)
            noted.update(note.key for note in fresh)
            self._notifier.publish(launch.simulation)

    def reserve(self, launch: LiveLaunch, reservation: Reservation) -> bool:
        """Change whether a launch's workers are in use; False if that has changed meanwhile, as by its first lease."""
        if not self._write(lambda c: launches.reserve(c, launch.id, launch.reservation, reservation)):
            return False
        if (message := RESERVATION_MESSAGES.get(reservation)) is not None:
            self.record_notes(launch, [Note(key=reservation.value, message=message)])
        return True

    def resize(self, launch: LiveLaunch, workers: int) -> None:
        """Record a launch's new number of workers."""
        self._write(lambda c: launches.resize(c, launch.id, workers, self._database.now(c)))

    def mark_usage(
        self,
        executor: str,
        present: Collection[str],
        suspended: Collection[str],
        warm: Collection[WarmGrant],
        elapsed: float | None,
    ) -> None:
        """Record that launches and warm runners of an executor were still there, and what its cluster's queue has.

        ``elapsed``: seconds since they were marked last, by this process's clock.
        """

        def mark(c: Connection) -> None:
            now = self._database.now(c)
            launches.mark(c, present, now, elapsed)
            usage_intervals.wait(c, suspended, now)
            usage_intervals.keep_warm(c, executor, warm, now, elapsed)

        self._write(mark, durable=False)

    def report_health(self, health: Mapping[str, Mapping[str, object]]) -> None:
        """Store each executor's health, for the API."""

        def write(c: Connection) -> None:
            executors.forget_others(c, list(self._executor_configs))
            usage_intervals.end_warm_of_others(c, list(self._executor_configs), self._database.now(c))
            for name, values in health.items():
                executors.keep(c, name, values, self._database.now(c))

        self._write(write, durable=False)

    def end_launch(self, launch: LiveLaunch) -> None:
        """End a launch: its token becomes invalid and its leases are released."""
        self._noted.pop(launch.id, None)
        self._write(lambda c: _end(c, launch, self._database.now(c)))
        self.outdated = True

    def requeue(
        self, launch: LiveLaunch, reason: str, *, counted: bool = True, pause: float = 0.0, staged: bool = False
    ) -> None:
        """End a launch that vanished and queue its simulation again, with back-off per barren attempt, at last ERRORED.

        ``counted`` is False for a launch that its executor did not take: the simulation waits as long as the executor
        needs. ``staged``: the next attempt begins with staging, whatever is ready. One transaction: after a crash there
        is either a live launch or a queued simulation. Does nothing for a launch that is over already, because its
        simulation may run elsewhere.
        """
        self._noted.pop(launch.id, None)

        def end_and_requeue(c: Connection) -> None:
            if not _end(c, launch, self._database.now(c), lost=True):
                return
            if not counted:
                launches.discount(c, launch.id)
            row = simulations.find(c, PLATFORM, launch.simulation)
            state = State(row.state)
            if state not in LIVE or row.outcome is not None:
                return
            now = self._database.now(c)
            _, done, _ = simulations.counts(c, launch.simulation)
            barren = launches.barren(c, launch.simulation, done)
            if barren >= MAX_BARREN_ATTEMPTS:
                leases.close_early(c, launch.simulation)
                message = f"{barren} attempts in a row brought no result; the last: {reason}"
                simulations.conclude(c, launch.simulation, state, State.ERRORED, message)
            else:
                later = now + max(pause, BARREN.pause(barren) if barren else 0.0)
                values: dict[str, object] = {"preparation": None}
                if staged:
                    values["staging_failures"] = max(1, row.staging_failures)
                simulations.move(
                    c, launch.simulation, state, State.QUEUED, now, reason=reason, not_before=later, **values
                )

        self._write(end_and_requeue)
        self.outdated = True
        self._notifier.publish(launch.simulation)

    def requeue_stranded(self, simulation: ActiveSimulation) -> None:
        """Queue a RUNNING simulation again that has tasks left but no launch."""

        def requeue(c: Connection) -> bool:
            running = simulations.find(c, PLATFORM, simulation.id).state == State.RUNNING
            if not running or launches.at_work(c, simulation.id) or leases.open_stage(c, simulation.id) is None:
                return False
            now = self._database.now(c)
            simulations.move(c, simulation.id, State.RUNNING, State.QUEUED, now, reason="its launch is over")
            return True

        if self._write(requeue):
            self.outdated = True
            logger.warning("simulation %s is running without a launch; it is queued again", simulation.id)
            self._notifier.publish(simulation.id)

    def unfinished(self, ids: Sequence[str]) -> set[str]:
        """Return those of these simulations that have tasks without a result."""
        with self._database.read() as c:
            return leases.unfinished(c, ids)

    def close(self, id: str) -> bool:
        """Close the open stage if every task has a result; return whether the simulation is ready to be finalized."""
        with self._database.read() as c:
            stage = leases.open_stage(c, id)
        if stage is None:
            return True
        return self._write(lambda c: leases.close(c, stage.id))

    def collect(self, id: str) -> None:
        """Enqueue the `collect` job."""
        self._notifier.enqueue("collect", id)

    def give_up(
        self, simulation: ActiveSimulation, following: State, reason: str, launch: LiveLaunch | None = None
    ) -> None:
        """Decide that a simulation ends early, in state ``following``, and end its ``launch``."""

        def end(c: Connection) -> None:
            if launch is not None:
                _end(c, launch, self._database.now(c), lost=following is State.ERRORED)
            state = State(simulations.find(c, PLATFORM, simulation.id).state)
            if state not in LIVE or simulation.state not in LIVE:
                state = simulation.state
            leases.close_early(c, simulation.id)
            simulations.conclude(c, simulation.id, state, following, reason)

        try:
            self._write(end)
        except Conflict as error:
            logger.info("%s", error.detail)
        else:
            self.outdated = True
            self.collect(simulation.id)

    def tick(self, running: list[ActiveSimulation], now: float) -> None:
        """Sum up arrived segments, and write at most one progress event for each simulation that advanced."""
        for id in self._progress.keys() - {simulation.id for simulation in running}:
            del self._progress[id]
        for simulation in running:
            if simulation.problem is not None:
                continue  # it is given up already
            try:
                self._tick(simulation, now)
            except UnreadableRow as error:
                logger.error("simulation %s ends: %s", simulation.id, error.detail)
                self.give_up(simulation, State.ERRORED, error.detail or "its row cannot be read")

    def _tick(self, simulation: ActiveSimulation, now: float) -> None:
        with self._database.read() as c:
            stage = results.newest_stage(c, simulation.id)
            unnumbered = results.unnumbered(c, stage)
        if unnumbered:
            self._write(lambda c: results.number(c, stage), durable=False)
        progress = self._progress.get(simulation.id)
        definition = played(simulation.provenance.dataset).definition
        if progress is None:
            progress = Progress(simulation.id, Score.of(definition).metric, never_values(definition))
            self._progress[simulation.id] = progress
        before = progress.arrived
        while True:
            with self._database.read() as c:
                page = results.arrived(c, stage, progress.arrived)
                total, _, _ = simulations.counts(c, simulation.id)
            if not page:
                break
            progress.add(page)
        if progress.arrived == before:
            return
        body = progress.describe(total, now - simulation.started_at if simulation.started_at else 0.0)
        body["answer"] = progress.answer(definition, simulation.provenance.play.tasks)

        def write(c: Connection) -> bool:
            if not events.say_while(c, simulation.id, State.RUNNING, "progress", body, self._database.now(c)):
                return False  # it has just ended, and the event of its end is the last
            simulations.set_progress(c, simulation.id, {**body, "score": progress.score()})
            return True

        if not self._write(write, durable=False):
            return
        self._notifier.publish(simulation.id)
        if (reason := too_many(simulation.spec.max_failures, progress.failed)) is not None:
            self.give_up(simulation, State.FAILED, reason)


def _end(c: Connection, launch: LiveLaunch, now: float, *, lost: bool = False) -> bool:
    """End a launch and release its leases without blame; return False if it was over already."""
    if not launches.end(c, launch.id, now, lost=lost):
        return False
    for stage, start, fencing_token in leases.of_launch(c, launch.simulation, launch.id):
        leases.release(c, stage, start, fencing_token, blame=False)
    return True
