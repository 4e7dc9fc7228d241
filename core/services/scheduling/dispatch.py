"""What the dispatcher reads and writes: queue, launches, closing of stages, progress. Its loop is in workers/."""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import msgspec

from core.domain.executor_config import ExecutorConfig
from core.domain.ids import hashed, new_token
from core.domain.launches import Gang, Launch, Note, Placement, replicas
from core.domain.states import LIVE, State
from core.notifications.notifier import Notifier
from core.services.scheduling.progress import Progress, too_many
from core.services.scheduling.snapshots import Busy, Lent, Snapshot
from core.services.uploads.models import key_of
from core.store import executors, launches, leases, results, simulations
from core.store.database import Connection, Database
from core.store.leaders import holds
from datasets.versions import scenario_folder
from errors import Conflict

T = TypeVar("T")


class Offered(Protocol):
    """What waits for a launch: the id that it was made under, and what is kept of its token."""

    @property
    def id(self) -> str: ...

    @property
    def token_hash(self) -> str: ...


logger = logging.getLogger(__name__)

#: Attempts in a row without one more result, after which the platform gives up.
HOPELESS = 8


class Dispatch:
    """The dispatcher's hands. Every write checks that it still leads."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        *,
        executor_configs: Sequence[ExecutorConfig],
        runner_api_url: str,
        gangs: Collection[str] = (),
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._executor_configs = {one.name: one for one in executor_configs}
        self._url = runner_api_url
        self._gangs = frozenset(gangs)  # the executors that can start some
        self.epoch: int | None = None
        self._progress: dict[str, Progress] = {}
        self._told: dict[str, set[str]] = {}

    def _write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        def checked(c: Connection) -> T:
            if self.epoch is not None and not holds(c, "dispatch", self.epoch):
                raise Conflict("Another dispatcher leads now.")
            return work(c)

        return self._database.write(checked, durable=durable)

    def snapshot(self) -> Snapshot:
        """Look at everything that has not ended."""
        with self._database.read() as c:
            now = self._database.now(c)
            busy = tuple(self._busy(row, now) for row in simulations.busy(c))
            lent = tuple(
                Lent(
                    row.id,
                    row.simulation_id,
                    row.attempt,
                    row.executor,
                    json.loads(row.resources)["cpu"],
                    State(row.simulation_state),
                    now - row.created_at,
                )
                for row in launches.live(c)
            )
        return Snapshot(now, busy, lent)

    def _busy(self, row: Any, now: float) -> Busy:
        spec = json.loads(row.spec)
        requested = 1 if row.dry_run else spec.get("workers")
        among = None
        if gang := spec.get("gang"):
            requested = replicas(gang)
            among = frozenset(
                name for name in self._gangs if self._executor_configs[name].workers_for(requested) == requested
            )
        executor = row.executor or ""
        if State(row.state) is State.QUEUED or executor not in self._executor_configs:
            executor = ""
        return Busy(
            row.id,
            State(row.state),
            row.attempt,
            executor,
            (spec.get("placement") or {}).get("executor") or "",
            among,
            requested,
            self._executor_configs[executor].workers_for(requested) if executor else 1,
            bool(row.dry_run),
            row.created_at,
            row.not_before,
            row.started_at,
            spec.get("timeout"),
            row.claim is not None and row.claim_until > now,
            json.loads(row.provenance),
            spec,
            row.project,
            json.loads(row.bundle) if row.bundle else {},
        )

    def move(self, id: str, current: State, following: State, **changes: Any) -> bool:
        """Move a simulation on; False if somebody else moved it."""
        try:
            self._write(lambda c: simulations.move(c, id, current, following, self._database.now(c), **changes))
        except Conflict as error:
            logger.info("%s", error.detail)
            return False
        self._notifier.publish(id)
        return True

    def admit(self, one: Busy, executor: str, *, ready: bool) -> bool:
        """Take a simulation off the queue, to run there: straight to LAUNCHING where there is nothing to stage."""

        def steps(c: Connection) -> None:
            now = self._database.now(c)
            simulations.move(c, one.id, State.QUEUED, State.STAGING, now, reason=None, executor=executor)
            if ready:
                simulations.move(c, one.id, State.STAGING, State.LAUNCHING, now)

        try:
            self._write(steps)
        except Conflict as error:
            logger.info("%s", error.detail)
            return False
        self._notifier.publish(one.id)
        if not ready:
            self.stage(one.id)
        return True

    def launch(self, one: Busy, offer: Callable[[Launch], Offered | None] = lambda _: None) -> Launch | None:
        """Write a launch down and return it with its token, this once; the row commits before anyone is asked.

        ``offer`` may return what waits for just such a launch: then it takes that one's id, and nobody here knows its
        token. None where the simulation has a launch already, or has moved on.
        """
        launch = self._described(one)
        offered = offer(launch)
        model = {"key": launch.model_key, "digest": launch.model_digest, "size": launch.model_size}
        # What a runner that shares no folder with us is given, by the surface it leases from.
        files = {"model": model} | ({"play": one.bundle["play"]} if one.bundle else {})

        def add(c: Connection) -> tuple[str, bool] | None:
            if simulations.find(c, one.id).state != State.LAUNCHING or launches.at_work(c, one.id):
                return None
            # Offered twice, as by a dispatcher before us: a launch of its own is always right.
            taken = offered if offered is not None and not launches.known(c, [offered.id]) else None
            name = taken.id if taken is not None else f"{one.id}x{one.attempt}x{launches.tries(c, one.id)}"
            _, done, _ = simulations.counts(c, one.id)
            resources = {"cpu": one.workers, "done": done, "files": files}
            launches.add(
                c,
                {
                    "id": name,
                    "simulation_id": one.id,
                    "attempt": one.attempt,
                    "executor": one.executor,
                    "token_hash": taken.token_hash if taken is not None else hashed(launch.token),
                    "resources": json.dumps(resources),
                    "state": "live",
                    "created_at": self._database.now(c),
                },
            )
            return name, taken is not None

        written = self._write(add)
        if written is None:
            return None
        id, waited = written
        if not waited:
            return replace(launch, id=id)
        self._notifier.publish(id)  # its runners hear it
        return replace(launch, id=id, token="")

    def _described(self, one: Busy) -> Launch:
        provenance, packed = one.provenance, one.bundle
        dataset = provenance["dataset"]
        shipped = dataset.get("extends", dataset)
        return Launch(
            id="",
            simulation_id=one.id,
            attempt=one.attempt,
            url=self._url,
            workers=one.workers,
            runtime=provenance["runtime"]["name"],
            format=provenance["model"]["format"],
            dataset=shipped["name"],
            version=shipped["version"],
            play=scenario_folder.named(dataset),
            model_digest=provenance["model"]["digest"],
            model_key=key_of(provenance["model"]["digest"]),
            model_size=packed.get("model_size", 0),
            token=new_token(),
            project=one.project,
            play_key=packed["play"]["key"] if packed else "",
            play_digest=packed["play"]["digest"] if packed else "",
            play_size=packed["play"]["size"] if packed else 0,
            gang=msgspec.convert(one.spec["gang"], Gang) if one.spec.get("gang") else None,
            placement=msgspec.convert(one.spec.get("placement") or {}, Placement),
            timeout=one.timeout,
        )

    def heartbeating(self, launch: Lent) -> bool:
        """Tell whether a runner of a launch holds a lease that lives, whatever its executor says."""
        with self._database.read() as c:
            return leases.heartbeating(c, launch.simulation, launch.id, self._database.now(c))

    def living(self, executor: str) -> set[str]:
        """Return the launches of one executor that are not over, as of now."""
        with self._database.read() as c:
            return launches.living(c, executor)

    def tell(self, launch: Lent, notes: Iterable[Note]) -> None:
        """Put what an executor sees of a launch into its simulation's events, each note once."""
        notes = list(notes)
        if not notes:
            return
        told = self._told.get(launch.id)
        if told is None:  # a dispatcher before us may have told some
            with self._database.read() as c:
                said = simulations.said(c, launch.simulation, "launch")
            told = self._told[launch.id] = {body["key"] for body in said if body["launch"] == launch.id}
        fresh = [note for note in notes if note.key not in told]

        def write(c: Connection) -> None:
            for note in fresh:
                body = {"launch": launch.id, "executor": launch.executor, "key": note.key, "message": note.words}
                simulations.say(c, launch.simulation, "launch", body, self._database.now(c))

        if fresh:
            self._write(write)
            told.update(note.key for note in fresh)
            self._notifier.publish(launch.simulation)

    def widen(self, launch: Lent, workers: int) -> None:
        """Note that a launch has another width now."""
        self._write(lambda c: launches.widen(c, launch.id, workers))

    def report_health(self, faring: Mapping[str, Mapping[str, Any]]) -> None:
        """Write down how each place fares, for people."""

        def write(c: Connection) -> None:
            executors.forget_others(c, list(self._executor_configs))
            for name, values in faring.items():
                executors.keep(c, name, values, self._database.now(c))

        self._write(write, durable=False)

    def end_launch(self, launch: Lent) -> None:
        """A launch is over: its token dies, its leases return."""
        self._told.pop(launch.id, None)
        self._write(lambda c: _end(c, launch))

    def again(self, launch: Lent, reason: str, *, counted: bool = True, pause: float = 0.0) -> None:
        """A launch vanished while there was work: queue again, later each time nothing came of it, at last give up.

        One that was not taken is not counted: the simulation waits for as long as its place needs. One transaction:
        who dies here leaves a launch that lives, or a simulation that waits for the next. A launch that is over by now
        is let be, for its simulation may be at work elsewhere.
        """
        self._told.pop(launch.id, None)

        def requeue(c: Connection) -> None:
            if not _end(c, launch):
                return
            if not counted:
                launches.discount(c, launch.id)
            state = State(simulations.find(c, launch.simulation).state)
            if state not in LIVE:
                return
            now = self._database.now(c)
            _, done, _ = simulations.counts(c, launch.simulation)
            barren = launches.barren(c, launch.simulation, done)
            if barren >= HOPELESS:
                leases.close_early(c, launch.simulation)
                words = f"{barren} attempts in a row came to nothing; the last: {reason}"
                simulations.move(c, launch.simulation, state, State.ERRORED, now, reason=words)
            else:
                later = now + max(pause, 0.0 if barren == 0 else min(30.0, 0.25 * 2**barren))
                simulations.move(c, launch.simulation, state, State.QUEUED, now, reason=reason, not_before=later)

        self._write(requeue)
        self._notifier.publish(launch.simulation)

    def stranded(self, one: Busy) -> None:
        """Queue a simulation again that runs, has tasks left, and has no launch."""

        def requeue(c: Connection) -> bool:
            running = simulations.find(c, one.id).state == State.RUNNING
            if not running or launches.at_work(c, one.id) or leases.open_stage(c, one.id) is None:
                return False
            now = self._database.now(c)
            simulations.move(c, one.id, State.RUNNING, State.QUEUED, now, reason="its launch is over")
            return True

        if self._write(requeue):
            logger.warning("simulation %s had no launch any more", one.id)
            self._notifier.publish(one.id)

    def close(self, id: str) -> bool:
        """Close the open stage if every task has a result; tell whether the simulation is ready to be collected."""
        with self._database.read() as c:
            stage = leases.open_stage(c, id)
        if stage is None:
            return True
        return self._write(lambda c: leases.close(c, stage.id))

    def stage(self, id: str) -> None:
        """Ring for the stager."""
        self._notifier.enqueue("stage", id)

    def collect(self, id: str) -> None:
        """Ring for the collector."""
        self._notifier.enqueue("collect", id)

    def give_up(self, one: Busy, following: State, reason: str, launch: Lent | None = None) -> None:
        """End a simulation before its time, and the launch that shows that it must be."""

        def end(c: Connection) -> None:
            if launch is not None:
                _end(c, launch)
            state = State(simulations.find(c, one.id).state)
            if state not in LIVE or one.state not in LIVE:
                state = one.state
            leases.close_early(c, one.id)
            simulations.move(c, one.id, state, following, self._database.now(c), reason=reason)

        try:
            self._write(end)
        except Conflict as error:
            logger.info("%s", error.detail)
        self._notifier.publish(one.id)

    def unfinished(self) -> list[str]:
        """Return simulations that ended early and are not summed up yet."""
        with self._database.read() as c:
            return simulations.unsummed(c)

    def deleted(self) -> list[str]:
        """Return simulations with a tombstone whose rows are still there."""
        with self._database.read() as c:
            return simulations.buried(c)

    def tick(self, running: list[Busy], now: float) -> None:
        """Sum up what has arrived, and write at most one progress event for each simulation that got on."""
        for id in self._progress.keys() - {one.id for one in running}:
            del self._progress[id]
        for one in running:
            self._tick(one, now)

    def _tick(self, one: Busy, now: float) -> None:
        with self._database.read() as c:
            stage = results.stage_ids(c, one.id)[-1]
            unnumbered = results.unnumbered(c, stage)
        if unnumbered:
            self._write(lambda c: results.number(c, stage), durable=False)
        progress = self._progress.setdefault(one.id, Progress(one.id))
        before = progress.arrived
        while True:
            with self._database.read() as c:
                page = results.arrived(c, stage, progress.arrived)
                total, _, _ = simulations.counts(c, one.id)
            if not page:
                break
            progress.add(page)
        if progress.arrived == before:
            return
        body = progress.describe(total, now - one.started_at if one.started_at else 0.0)

        def write(c: Connection) -> None:
            simulations.set_progress(c, one.id, body)
            simulations.say(c, one.id, "progress", body, self._database.now(c))

        self._write(write, durable=False)
        self._notifier.publish(one.id)
        if (reason := too_many(one.spec, body["failed"])) is not None:
            self.give_up(one, State.FAILED, reason)


def _end(c: Connection, launch: Lent) -> bool:
    """End a launch and take its leases back, nobody to blame; tell whether it was not over before."""
    if not launches.end(c, launch.id):
        return False
    for stage, start, fencing_token in leases.of_launch(c, launch.simulation, launch.id):
        leases.release(c, stage, start, fencing_token, witness=False, blame=False)
    return True
