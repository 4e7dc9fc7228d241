"""What workers may do: lease, report, heartbeat, say who died. The statements are core/store/leases.py."""

import json
import secrets
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.domain.ids import hashed
from core.domain.ranges import EXPIRIES, STRIKES, Ended, Later, Lease
from core.domain.states import LIVE, State
from core.notifications.launch_waiters import LaunchWaiters
from core.notifications.notifier import Notifier
from core.services.datasets.catalogue import played
from core.services.scheduling.reports import Report, checked, crashed, first
from core.services.uploads.models import key_of
from core.store import launches, leases, results, simulations
from core.store.database import Connection, Database
from core.store.leases import LeasingWorker, RangePosition, Segment
from datasets.objectstore.base import ObjectStore
from errors import Gone, NotFound, Unauthorized

#: For how long a process believes what it knows of a launch.
BELIEF = 1.0


@dataclass(frozen=True, slots=True)
class Known:
    """A launch as one process knows it."""

    id: str
    simulation: str
    token_hash: str
    workers: int
    running: bool
    asked_at: float


@dataclass(frozen=True, slots=True)
class Bundle:
    """An object that a runner may fetch."""

    key: str
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Where the range stands after a report (None: lost), whether it was taken, and what is next if asked."""

    place: RangePosition | None
    taken: bool
    next: Lease | Later | Ended | None = None


class Leases:
    """Lends ranges of tasks and takes results. Every result it has answered for is durable."""

    def __init__(
        self,
        database: Database,
        store: ObjectStore,
        notifier: Notifier,
        *,
        ttl: float = 10.0,
        launch_waiters: LaunchWaiters | None = None,
        cache_ttl: float = BELIEF,
    ) -> None:
        self._database = database
        self._store = store
        self._notifier = notifier
        self._ttl = ttl
        self._launch_waiters = launch_waiters or LaunchWaiters(database, notifier)
        self._cache_ttl = cache_ttl
        self._known: dict[str, Known] = {}
        self._lock = threading.Lock()

    # -- who asks

    @property
    def waiting(self) -> int:
        """Requests of this process that wait for a launch."""
        return self._launch_waiters.waiting

    def wait(self, launch_id: str, timeout: float) -> bool:
        """Block until there is a launch of this id; tell whether there is. Whose it is, ``authenticate`` says."""
        return self._launch_waiters.wait(launch_id, timeout)

    def dismiss(self) -> None:
        """Send whoever waits for a launch elsewhere: this process is to end."""
        self._launch_waiters.close()

    def authenticate(self, launch_id: str, token: str) -> Known:
        """Return the launch if the token is its own; raise Unauthorized, or Gone once it is over."""
        known = self._known.get(launch_id)
        if known is None or time.monotonic() - known.asked_at > self._cache_ttl:
            with self._database.read() as c:
                row = launches.find(c, launch_id)
            if row is None:
                raise Unauthorized()
            state = State(row.simulation_state)
            if row.state != "live" or state not in LIVE:
                with self._lock:
                    self._known.pop(launch_id, None)
                if not secrets.compare_digest(row.token_hash, hashed(token)):
                    raise Unauthorized()
                raise Gone("This launch is over. Drop everything and exit.")
            known = _known(row)
            with self._lock:
                self._known[launch_id] = known
        if not secrets.compare_digest(known.token_hash, hashed(token)):
            raise Unauthorized()
        return known

    def unattended(self, launch_id: str) -> Known | None:
        """Return a launch to whoever stands in for runners that it does not have; None once it is over."""
        with self._database.read() as c:
            row = launches.find(c, launch_id)
        return _known(row) if row is not None and row.state == "live" and State(row.simulation_state) in LIVE else None

    def describe(self, launch: Known) -> dict[str, Any]:
        """Return what a runner needs to set its evaluators up."""
        with self._database.read() as c:
            row = simulations.find(c, launch.simulation)
        provenance = json.loads(row.provenance)
        definition = played(provenance["dataset"]).definition
        model = {"digest": row.digest, "format": provenance["model"]["format"]}
        files = {
            name: {"digest": bundle.digest, "size": bundle.size}
            for name, bundle in (("model", self._model(row)), ("play", _play(row)))
            if bundle is not None
        }
        return {
            "launch": launch.id,
            "simulation": launch.simulation,
            "workers": launch.workers,
            "play": provenance["play"] | {"definition": dict(definition)},
            "model": model,
            "files": files,
        }

    # -- what runners that share no folder with us fetch

    def bundle(self, launch: Known, name: str) -> Bundle:
        """Return what a launch's runner may fetch by this name: its ``model``, or what it is to ``play``."""
        with self._database.read() as c:
            row = simulations.find(c, launch.simulation)
        found = self._model(row) if name == "model" else _play(row)
        if found is None:
            raise NotFound("This launch has no such file: it is for a place that shares our folders.")
        return found

    def read(self, bundle: Bundle, start: int, stop: int) -> Iterator[bytes]:
        """Yield a part of it."""
        return self._store.get(bundle.key, start, stop - start)

    def link(self, bundle: Bundle, seconds: int) -> str | None:
        """Return where the object store itself gives it, if others than us reach the store."""
        return self._store.link(bundle.key, seconds=seconds)

    def _model(self, row: Any) -> Bundle | None:
        key = key_of(row.digest)
        size = json.loads(row.bundle or "{}").get("model_size")
        try:
            return Bundle(key, row.digest, int(size if size is not None else self._store.size(key)))
        except NotFound:
            return None  # nobody uploaded it here: whoever launches knows where it lies

    # -- work

    def lease(self, launch: Known, worker: str, rate: float | None) -> Lease | Later | Ended:
        """Lend a range, or say when to ask again. The first lease moves the simulation to RUNNING."""
        answer = self._database.write(lambda c: self._lend(c, launch, worker, rate), durable=not launch.running)
        self._started(launch, answer)
        return answer

    def begin(self, launch: Known) -> None:
        """Move the simulation to RUNNING without a lease: nobody asks for one before the end."""
        self._database.write(lambda c: self._run(c, launch, self._database.now(c)))
        self._started(launch, None)

    def _lend(self, c: Connection, launch: Known, worker: str, rate: float | None) -> Lease | Later | Ended:
        now = self._database.now(c)
        if not launch.running:
            self._run(c, launch, now)
        stage = leases.open_stage(c, launch.simulation)
        if stage is None:
            return Ended()
        lease = leases.lend(c, stage, LeasingWorker(launch.id, worker, rate, launch.workers, self._ttl), now)
        # Jitter, lest all idle workers come back at once.
        return lease or Later(0.05 + secrets.randbelow(200) / 1000)

    def _run(self, c: Connection, launch: Known, now: float) -> None:
        row = launches.find(c, launch.id)
        if row is None or row.state != "live" or State(row.simulation_state) not in LIVE:
            raise Gone("This launch is over. Drop everything and exit.")
        if State(row.simulation_state) is State.LAUNCHING:
            started = simulations.find(c, launch.simulation).started_at or now
            simulations.move(c, launch.simulation, State.LAUNCHING, State.RUNNING, now, started_at=started)

    def _started(self, launch: Known, answer: object) -> None:
        if not launch.running:
            with self._lock:
                self._known.pop(launch.id, None)
            self._notifier.publish(launch.simulation)
        if isinstance(answer, Later):
            self._notifier.wake("dispatch")  # perhaps the stage can be closed

    def report(self, launch: Known, report: Report) -> Answer:
        """Take results if they begin at the cursor; the object is durable before its row, the row before the answer."""
        failures = checked(report)
        key = f"results/{launch.simulation}/{report.since:012d}-{secrets.token_hex(6)}"
        self._store.put(key, (report.lines, report.blobs) if report.blobs else (report.lines,))
        answer = self._database.write(lambda c: self._take(c, launch, report, key, failures), durable=False)
        if answer.taken:
            self._notifier.publish(launch.simulation)
        else:
            self._store.delete(key)
        if answer.place is not None and answer.place.cursor == answer.place.stop:
            self._notifier.wake("dispatch")
        return answer

    def _take(self, c: Connection, launch: Known, report: Report, key: str, failures: list[int]) -> Answer:
        now = self._database.now(c)
        to = report.to
        place = leases.advance(c, report.stage, report.start, report.fencing_token, report.since, to, report.rate, now)
        if place is None:
            seen = leases.position(c, report.stage, report.start, report.fencing_token)
            if seen is None or seen.cursor != report.since or not seen.cursor < seen.stop < to:
                return Answer(seen, False)
            to = seen.stop  # a thief took the rest: what lies before the new end counts
            place = leases.advance(
                c, report.stage, report.start, report.fencing_token, report.since, to, report.rate, now
            )
            if place is None:
                return Answer(leases.position(c, report.stage, report.start, report.fencing_token), False)
        lines = report.lines if to == report.to else first(report.lines, to - report.since)
        failed = sum(1 for task in failures if task < to)
        # A stolen tail makes the sketch one of too many tasks; live metrics are approximate, and say so.
        sketch = json.dumps(report.sketch) if report.sketch else None
        leases.record(
            c,
            report.stage,
            Segment(report.since, to, key, 0, len(lines), zlib.crc32(lines), failed, sketch),
        )
        offset = len(report.lines)
        for task, name, media_type, size in report.artifacts:
            if task < to:
                blob = report.blobs[offset - len(report.lines) : offset - len(report.lines) + size]
                one = results.Artifact(task, name, media_type, key, offset, size, zlib.crc32(blob))
                results.add_artifact(c, launch.simulation, one)
            offset += size
        following = None
        if report.next and place.cursor == place.stop:
            following = self._lend(c, launch, report.worker, report.rate)
        return Answer(place, True, following)

    def heartbeat(self, launch: Known, held: Sequence[tuple[str, int, str, int]]) -> list[RangePosition | None]:
        """Keep leases (stage, start, fencing token, task at work) alive; None for each that is lost."""

        def heartbeats(c: Connection) -> list[RangePosition | None]:
            now = self._database.now(c)
            return [
                leases.heartbeat(c, stage, start, fencing_token, task, now)
                for stage, start, fencing_token, task in held
            ]

        return self._database.write(heartbeats, durable=False)

    def leave(self, launch: Known, held: Sequence[tuple[str, int, str, int]]) -> None:
        """Take leases back from a runner that was told to stop: nobody is to blame, and others may go on at once."""

        def take(c: Connection) -> None:
            for stage, start, fencing_token, _ in held:
                leases.release(c, stage, start, fencing_token, witness=False, blame=False)

        self._database.write(take, durable=False)

    def death(self, launch: Known, stage: str, start: int, fencing_token: str, task: int, reason: str) -> None:
        """A supervisor saw a worker die by itself: return its lease; the third strike makes the task `crashed`."""
        back = self._database.write(
            lambda c: leases.release(c, stage, start, fencing_token, task=task, witness=True), durable=False
        )
        if back is not None and back.strikes >= STRIKES:
            self.settle(reason)

    def refused(self, launch: Known, reason: str) -> None:
        """The model does not load or does not fit: the simulation fails at once, and says why."""

        def fail(c: Connection) -> None:
            now = self._database.now(c)
            state = State(simulations.find(c, launch.simulation).state)
            if state in LIVE:
                leases.close_early(c, launch.simulation)
                simulations.move(c, launch.simulation, state, State.FAILED, now, reason=reason[:2000])
                launches.end(c, launch.id)

        self._database.write(fail)
        self._notifier.wake("dispatch")
        self._notifier.publish(launch.simulation)

    def log(self, launch: Known, name: str, data: bytes) -> None:
        """Keep a piece of output."""
        if not data:
            return
        key = f"logs/{launch.simulation}/{secrets.token_hex(8)}"
        self._store.put(key, (data,))

        self._database.write(lambda c: results.add_log(c, launch.simulation, name[:100], key, len(data)), durable=False)
        self._notifier.publish(launch.simulation)

    # -- the dispatcher's part

    def settle(self, reason: str = "its process ended again and again") -> int:
        """Give every poisoned task its result `crashed`; safe to repeat."""
        with self._database.read() as c:
            found = leases.poisoned(c)
        settled = 0
        for stage, start, stop in found:
            with self._database.read() as c:
                simulation = leases.simulation_of(c, stage)
                play = json.loads(simulations.find(c, simulation).provenance)["play"]
            line = crashed(play, start, reason)
            key = f"results/{simulation}/{start:012d}-{secrets.token_hex(6)}"
            self._store.put(key, (line,))
            segment = Segment(start, start + 1, key, 0, len(line), zlib.crc32(line), 1)
            settled += self._database.write(lambda c: leases.settle(c, stage, stop, segment))  # noqa: B023 - run at once
            self._notifier.publish(simulation)
        return settled

    def expire(self) -> list[str]:
        """Return the leases of workers not heard of; give the simulations that have been silent too often."""

        def pass_(c: Connection) -> list[str]:
            hopeless = []
            for stage, start, fencing_token in leases.expired(c, self._database.now(c)):
                back = leases.release(c, stage, start, fencing_token, witness=False)
                if back is not None and back.expiries > EXPIRIES:
                    hopeless.append(leases.simulation_of(c, stage))
            return hopeless

        return self._database.write(pass_, durable=False)


def _known(row: Any) -> Known:
    workers = int(json.loads(row.resources).get("cpu", 1))
    running = State(row.simulation_state) is State.RUNNING
    return Known(row.id, row.simulation_id, row.token_hash, workers, running, time.monotonic())


def _play(row: Any) -> Bundle | None:
    packed = json.loads(row.bundle or "{}").get("play")
    return Bundle(packed["key"], packed["digest"], int(packed["size"])) if packed else None
