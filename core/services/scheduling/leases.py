"""Lease service: leases, reports, heartbeats and deaths of workers. Its SQL is in core/store/leases.py."""

import json
import secrets
import threading
import time
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from common.errors import Gone, StoreUnavailable, Unauthorized, UnreadableRow
from common.ids import hashed
from core.domain.access.scopes import PLATFORM
from core.domain.results.outcomes import shorten_error
from core.domain.scheduling.ranges import EXPIRIES, STRIKES, Ended, Later, Lease, RangePosition, ReportedRange
from core.domain.scheduling.reservations import Reservation
from core.domain.scheduling.states import LIVE, State
from core.domain.submissions.provenance import Provenance, play_document, provenance_of
from core.notifications.change_notifier import ChangeNotifier
from core.notifications.launch_waiters import INTERVAL, LaunchWaiters
from core.notifications.launch_waiters import SLOTS as LAUNCH_SLOTS
from core.notifications.notifier import Notifier
from core.services.datasets.catalogue import played
from core.services.datasets.file_sources import Sources
from core.services.datasets.scenario_specs import ScenarioSpecs
from core.services.scheduling.launch_files import LaunchFiles
from core.services.scheduling.reports import TaskReport, crashed_line, failed_tasks, first_lines
from core.services.scheduling.runner_looks import SLOTS as LOOK_SLOTS
from core.services.scheduling.runner_looks import RunnerLooks
from core.services.scheduling.storage_notes import StorageNotes
from core.services.scheduling.task_files import TaskFiles
from core.services.scheduling.task_progress import TaskProgress
from core.services.scheduling.tunnels import SLOTS as TUNNEL_SLOTS
from core.store import events, launches, leases, results, simulations
from core.store.database import Connection, Database
from core.store.leases import LeasingWorker, Segment
from core.store.results import Artifact
from datasets.objectstore.base import ObjectStore
from runtimes import formats
from runtimes.harness.evaluator.tasks import TaskPlan
from runtimes.harness.runner.runner_api_messages import DeathReport

#: Seconds after which a launch asks again for workers that it has lent.
AWAITING_WORKERS = 0.25
#: Requests of runners that wait at the same time in a process at most: for launches, looks and forwarded bytes.
WAITING_REQUESTS = LAUNCH_SLOTS + LOOK_SLOTS + TUNNEL_SLOTS
#: Seconds for which a process caches a launch's row.
CACHE_TTL = 1.0


@dataclass(frozen=True, slots=True)
class CachedLaunch:
    """A launch's row as cached by this process; ``cached_at`` is on the monotonic clock."""

    id: str
    simulation: str
    token_hash: str
    workers: int
    running: bool
    cached_at: float


@dataclass(frozen=True, slots=True)
class ReportOutcome:
    """The range's position after a report (None: lease lost), whether it was accepted, the next lease if asked."""

    position: RangePosition | None
    accepted: bool
    next: Lease | Later | Ended | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseOptions:
    """Options of leases. ``ttl``: seconds after which a lease without a heartbeat expires.

    ``max_unpacked``: most bytes of the files of a model that is an archive, for runners that unpack it. ``max_output``:
    most bytes of the files that a task of a program leaves. ``cache_ttl``: seconds for which a process trusts what it
    knows of a launch. ``looks``: whether people may look into tasks that run; ``ports``: to which they may connect.
    """

    ttl: float = 10.0
    cache_ttl: float = CACHE_TTL
    max_unpacked: int = 4 << 30
    max_output: int = 1 << 30
    looks: bool = False
    ports: Collection[int] = ()


class Leases:
    """Leases ranges of tasks to workers and stores their results. Every acknowledged result is durable."""

    def __init__(
        self,
        database: Database,
        store: ObjectStore,
        notifier: Notifier,
        *,
        options: LeaseOptions | None = None,
        launch_waiters: LaunchWaiters | None = None,
        specs: ScenarioSpecs | None = None,
    ) -> None:
        self._database = database
        self._store = store
        self._notifier = notifier
        self._options = options or LeaseOptions()
        #: Requests that wait for their launch, in this process; ``authenticate`` checks their tokens afterwards.
        changes = ChangeNotifier(database, notifier, interval=INTERVAL)
        self.launch_waiters = launch_waiters or LaunchWaiters(database, changes)
        self.looks = RunnerLooks(database, notifier, changes, allowed=self._options.looks, ports=self._options.ports)
        self._specs = specs or ScenarioSpecs(database, store, Sources(store, {}))
        #: Files for runners without a shared folder.
        self.files = LaunchFiles(database, store)
        self.task_files = TaskFiles(database, store)
        self.task_progress = TaskProgress(database, notifier, self.task_files)
        self._storage_notes = StorageNotes(database, notifier)
        self._known: dict[str, CachedLaunch] = {}
        self._lock = threading.Lock()

    @property
    def largest_output(self) -> int:
        """The most bytes of the files that a task of a program leaves."""
        return self._options.max_output

    def close(self) -> None:
        """End all requests that wait, and refuse new ones: they would delay the shutdown of the server."""
        self.launch_waiters.close()
        self.looks.close()

    # -- authentication

    def authenticate(self, launch_id: str, token: str) -> CachedLaunch:
        """Return the launch if the token belongs to it; raise Unauthorized, or Gone once the launch is over."""
        launch = self._known.get(launch_id)
        if launch is None or time.monotonic() - launch.cached_at > self._options.cache_ttl:
            with self._database.read() as c:
                row = launches.find(c, launch_id)
            if row is None:
                raise Unauthorized()
            if not row.accepts_results:
                with self._lock:
                    self._known.pop(launch_id, None)
                if not secrets.compare_digest(row.token_hash, hashed(token)):
                    raise Unauthorized()
                raise Gone("This launch is over. Drop everything and exit.")
            launch = _known(row)
            with self._lock:
                self._known[launch_id] = launch
        if not secrets.compare_digest(launch.token_hash, hashed(token)):
            raise Unauthorized()
        return launch

    def unattended(self, launch_id: str) -> CachedLaunch | None:
        """Return a launch without runners, for ``Programs`` (which reports in their position); None once it is over."""
        with self._database.read() as c:
            row = launches.find(c, launch_id)
        return _known(row) if row is not None and row.accepts_results else None

    def provenance(self, launch: CachedLaunch) -> Provenance:
        """Return the provenance of a launch's simulation."""
        with self._database.read() as c:
            return provenance_of(simulations.find(c, PLATFORM, launch.simulation).provenance)

    def describe(self, launch: CachedLaunch) -> dict[str, object]:
        """Return the description from which a runner sets up its evaluators."""
        with self._database.read() as c:
            row = simulations.find(c, PLATFORM, launch.simulation)
        provenance = provenance_of(row.provenance)
        definition = played(provenance.dataset).definition
        model = self.describe_model(row.digest, provenance.played_model.format)
        return {
            "launch": launch.id,
            "simulation": launch.simulation,
            "workers": launch.workers,
            "play": play_document(row.provenance, definition),
            "model": model,
            "files": self.files.describe(row),
            "largest_output": self._options.max_output,
            "shown": self.looks.allowed,
            "ports": list(self.looks.ports),
        }

    def describe_model(self, digest: str, format: str) -> dict[str, object]:
        """Return what a runner has to know of a model; ``largest_unpacked``: bytes, if an archive is to be unpacked.

        ``placed``: the name that a model of one file gets in the folder of its own, if its format places it.
        """
        model_format = formats.formats()[format]
        unpacked = {"largest_unpacked": self._options.max_unpacked} if model_format.unpacked else {}
        placed = {"placed": model_format.placed} if model_format.placed else {}
        return {"digest": digest, "format": format, **unpacked, **placed}

    # -- leases and reports

    def lease(self, launch: CachedLaunch, worker: str, rate: float | None) -> Lease | Later | Ended:
        """Lease a range, or return when to ask again. The first lease moves the simulation to RUNNING."""
        answer = self._database.write(lambda c: self._lend(c, launch, worker, rate), durable=not launch.running)
        if answer is None:
            return Later(AWAITING_WORKERS)
        self._started(launch)
        if isinstance(answer, Later):
            self._wake_if_finished(launch)
        return answer

    def begin(self, launch: CachedLaunch) -> None:
        """Move the simulation to RUNNING without a lease, for launches whose only lease is taken at the end."""
        self._database.write(lambda c: self._run(c, launch, self._database.now(c)))
        self._started(launch)

    def _lend(
        self, c: Connection, launch: CachedLaunch, worker: str, rate: float | None
    ) -> Lease | Later | Ended | None:
        """Lease a range; None while the launch waits for the workers that it has lent."""
        now = self._database.now(c)
        if not launch.running and not self._run(c, launch, now):
            return None
        stage = leases.open_stage(c, launch.simulation)
        if stage is None:
            return Ended()
        lease = leases.lend(
            c,
            stage,
            LeasingWorker(launch=launch.id, name=worker, rate=rate, workers=launch.workers, ttl=self._options.ttl),
            now,
        )
        # Jitter, so that idle workers do not all ask again at once.
        return lease or Later(0.05 + secrets.randbelow(200) / 1000)

    def _run(self, c: Connection, launch: CachedLaunch, now: float) -> bool:
        """Move the simulation to RUNNING; False if the launch has lent its workers and has to wait for them."""
        row = launches.find(c, launch.id)
        if row is None or not row.accepts_results:
            raise Gone("This launch is over. Drop everything and exit.")
        if not launches.begin(c, launch.id):
            if launches.reserve(c, launch.id, Reservation.LENT, Reservation.READY):
                message = "its model is loaded; it waits for free workers"
                body = {"launch": launch.id, "executor": row.executor, "key": "ready", "message": message}
                events.say(c, launch.simulation, "launch", body, now)
            return False
        if State(row.simulation_state) is State.LAUNCHING:
            started = simulations.find(c, PLATFORM, launch.simulation).started_at or now
            simulations.move(c, launch.simulation, State.LAUNCHING, State.RUNNING, now, started_at=started)
        return True

    def _wake_if_finished(self, launch: CachedLaunch) -> None:
        """Wake the dispatcher if every task has a result, so that the stage is ready to be closed."""
        with self._database.read() as c:
            unfinished = leases.unfinished(c, [launch.simulation])
        if not unfinished:
            self._notifier.wake("dispatch")

    def _started(self, launch: CachedLaunch) -> None:
        if not launch.running:
            with self._lock:
                self._known.pop(launch.id, None)
            self._notifier.publish(launch.simulation)

    def report(self, launch: CachedLaunch, report: TaskReport) -> ReportOutcome:
        """Accept results that begin at the cursor; the object is durable before its row, the row before the answer."""
        failures = failed_tasks(report)
        for stored in report.header.stored:
            self.task_files.check(launch.simulation, stored)
        key = f"results/{launch.simulation}/{report.header.since:012d}-{secrets.token_hex(6)}"
        self._put(launch.simulation, key, (report.lines, report.blobs) if report.blobs else (report.lines,))
        outcome = self._database.write(lambda c: self._accept(c, launch, report, key, failures), durable=False)
        if outcome.accepted:
            self._notifier.publish(launch.simulation)
            for task in report.header.checkpointed:
                self.task_files.forget(launch.simulation, task)
        else:
            self._store.delete(key)
        ended = outcome.position is not None and outcome.position.cursor == outcome.position.stop
        if ended and not isinstance(outcome.next, Lease):  # after a lease, this or another report is the last
            self._wake_if_finished(launch)
        return outcome

    def _put(self, simulation: str, key: str, chunks: Sequence[bytes]) -> None:
        """Store an object of a simulation, which says so where people look while the store refuses it."""
        try:
            self._store.put(key, chunks)
        except StoreUnavailable as error:
            self._storage_notes.refused(simulation, str(error.detail))
            raise
        self._storage_notes.stored(simulation)

    def _accept(
        self, c: Connection, launch: CachedLaunch, report: TaskReport, key: str, failures: list[int]
    ) -> ReportOutcome:
        now = self._database.now(c)
        header = report.header
        claim = ReportedRange(
            stage=header.stage, start=header.start, fencing_token=header.fencing_token, since=header.since, to=header.to
        )
        decision = leases.advance(c, claim, header.rate, now)
        to, position = decision.end, decision.position
        if to is None or position is None:
            return ReportOutcome(position, False)
        lines = report.lines if to == header.to else first_lines(report.lines, to - header.since)
        # After a split the sketch still covers the tasks cut off; live metrics are documented as approximate.
        segment = Segment(
            start=header.since,
            stop=to,
            object=key,
            offset=0,
            bytes=len(lines),
            crc32=zlib.crc32(lines),
            failed=sum(1 for task in failures if task < to),
            sketch=json.dumps(header.sketch) if header.sketch else None,
        )
        leases.record(c, header.stage, segment)
        for artifact in stored_artifacts(report, key):
            if artifact.task < to:
                results.add_artifact(c, launch.simulation, artifact)
        for stored in header.stored:
            if stored.task < to:
                results.add_artifact(c, launch.simulation, Artifact(**msgspec.structs.asdict(stored), offset=0))
        following = None
        if header.next and position.cursor == position.stop:
            following = self._lend(c, launch, header.worker, header.rate)
        return ReportOutcome(position, True, following)

    def heartbeat(self, launch: CachedLaunch, held: Sequence[tuple[str, int, str, int]]) -> list[RangePosition | None]:
        """Renew leases (stage, start, fencing token, current task); the result is None for each lease that is lost."""

        def heartbeats(c: Connection) -> list[RangePosition | None]:
            now = self._database.now(c)
            return [
                leases.heartbeat(c, stage, start, fencing_token, task, now)
                for stage, start, fencing_token, task in held
            ]

        return self._database.write(heartbeats, durable=False)

    def leave(self, launch: CachedLaunch, held: Sequence[tuple[str, int, str, int]]) -> None:
        """Release the leases of a runner that is stopping: no strike, no expiry; others may continue at once."""

        def take(c: Connection) -> None:
            for stage, start, fencing_token, _ in held:
                leases.release(c, stage, start, fencing_token, blame=False)

        self._database.write(take, durable=False)

    def record_death(self, launch: CachedLaunch, death: DeathReport) -> None:
        """Release the lease of a worker that a runner saw die by itself; the third strike makes the task `crashed`."""

        def release(c: Connection) -> leases.Remainder | None:
            held = death.stage, death.start, death.fencing_token
            return leases.release(c, *held, task=death.task, death=shorten_error(death.reason))

        remainder = self._database.write(release, durable=False)
        if remainder is not None and remainder.strikes >= STRIKES:
            self.settle()

    def fail(self, launch: CachedLaunch, reason: str) -> None:
        """Fail the simulation at once, with the reason: its model does not load or does not fit."""

        def fail(c: Connection) -> bool:
            row = simulations.find(c, PLATFORM, launch.simulation)
            if State(row.state) not in LIVE or row.outcome is not None:
                return False
            leases.close_early(c, launch.simulation)
            simulations.conclude(c, launch.simulation, State(row.state), State.FAILED, reason[:2000])
            launches.end(c, launch.id, self._database.now(c))
            return True

        if self._database.write(fail):
            self._notifier.enqueue("collect", launch.simulation)
        self._notifier.wake("dispatch")

    def log(self, launch: CachedLaunch, name: str, data: bytes) -> None:
        """Store a piece of a worker's output."""
        if not data:
            return
        key = f"logs/{launch.simulation}/{secrets.token_hex(8)}"
        self._store.put(key, (data,))

        self._database.write(lambda c: results.add_log(c, launch.simulation, name[:100], key, len(data)), durable=False)
        self._notifier.publish(launch.simulation)

    # -- called by the dispatcher

    def settle(self) -> int:
        """Write the result `crashed` for every poisoned task; return their number. Idempotent."""
        with self._database.read() as c:
            found = leases.poisoned(c)
        settled = 0
        for poisoned in found:
            start = poisoned.start
            with self._database.read() as c:
                simulation = leases.simulation_of(c, poisoned.stage)
                row = simulations.find(c, PLATFORM, simulation)
            try:
                provenance = provenance_of(row.provenance)
            except UnreadableRow:
                continue  # the dispatcher ends it
            located = TaskPlan(provenance.play.tasks).locate(start)
            labels = self._specs.labels(row.caller, provenance.dataset, located.index)
            line = crashed_line(located, start, poisoned.death or "its process ended again and again", labels)
            key = f"results/{simulation}/{start:012d}-{secrets.token_hex(6)}"
            self._put(simulation, key, (line,))
            segment = Segment(
                start=start, stop=start + 1, object=key, offset=0, bytes=len(line), crc32=zlib.crc32(line), failed=1
            )
            settled += self._database.write(
                lambda c: leases.settle(c, poisoned.stage, poisoned.stop, segment)  # noqa: B023 - run at once
            )
            self._notifier.publish(simulation)
        return settled

    def expire(self) -> list[str]:
        """Release leases without a recent heartbeat; return simulations with a range that expired too often."""

        def release_expired(c: Connection) -> list[str]:
            hopeless = []
            for stage, start, fencing_token in leases.expired(c, self._database.now(c)):
                remainder = leases.release(c, stage, start, fencing_token)
                if remainder is not None and remainder.expiries > EXPIRIES:
                    hopeless.append(leases.simulation_of(c, stage))
            return hopeless

        with self._database.read() as c:  # a pass of the dispatcher asks, and nearly never has anything to write
            if not leases.expired(c, self._database.now(c)):
                return []
        return self._database.write(release_expired, durable=False)


def stored_artifacts(report: TaskReport, key: str) -> Iterator[results.Artifact]:
    """Yield a report's artifacts with their location in the object ``key``: they follow the result lines."""
    offset = len(report.lines)
    for task, name, media_type, size in report.header.artifacts:
        blob = report.blobs[offset - len(report.lines) : offset - len(report.lines) + size]
        yield results.Artifact(
            task=task, name=name, media_type=media_type, object=key, offset=offset, bytes=size, crc32=zlib.crc32(blob)
        )
        offset += size


def _known(row: launches.LaunchRow) -> CachedLaunch:
    running = State(row.simulation_state) is State.RUNNING
    return CachedLaunch(
        id=row.id,
        simulation=row.simulation_id,
        token_hash=row.token_hash,
        workers=row.workers,
        running=running,
        cached_at=time.monotonic(),
    )
