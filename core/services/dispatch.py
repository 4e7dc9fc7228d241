"""What the dispatcher reads and writes: queue, launches, closing of stages, progress. Its loop is in workers/."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from core.domain.admission import Waiting
from core.domain.ids import hashed, new_token
from core.domain.launches import Launch
from core.domain.states import State
from core.domain.statistics import merged, sketched
from core.errors import Conflict
from core.services.bells import Bell
from core.services.models import key_of
from core.store import launches, ranges, results, simulations
from core.store.database import Connection, Database
from core.store.leaders import holds
from core.store.ranges import Segment
from datasets import playing

T = TypeVar("T")
logger = logging.getLogger(__name__)

#: Attempts in a row without one more result, after which the platform gives up.
HOPELESS = 8


@dataclass(frozen=True, slots=True)
class Busy:
    """A simulation that has not ended, as the dispatcher sees it."""

    id: str
    state: State
    attempt: int
    cores: int
    dry_run: bool
    created_at: float
    not_before: float
    started_at: float | None
    timeout: float | None
    claimed: bool
    provenance: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lent:
    """A launch that is not over."""

    id: str
    simulation: str
    attempt: int
    cores: int
    state: State  # of its simulation
    age: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All the dispatcher decides on."""

    now: float
    busy: tuple[Busy, ...]
    launches: tuple[Lent, ...]

    @property
    def queue(self) -> list[Waiting]:
        """What waits to be admitted."""
        return [
            Waiting(one.id, one.cores, one.created_at, one.not_before, one.dry_run)
            for one in self.busy
            if one.state is State.QUEUED
        ]

    @property
    def held(self) -> int:
        """Cores that are held: by launches, and by what is admitted and on its way to one."""
        launched = {lent.simulation for lent in self.launches}
        coming = sum(
            one.cores
            for one in self.busy
            if one.state in {State.STAGING, State.LAUNCHING, State.RUNNING}
            and one.id not in launched
            and not one.claimed
        )
        return sum(lent.cores for lent in self.launches) + coming


class Dispatch:
    """The dispatcher's hands. Every write checks that it still leads."""

    def __init__(self, database: Database, bell: Bell, *, cores: int, drivers_url: str, executor: str) -> None:
        self._database = database
        self._bell = bell
        self._cores = cores
        self._url = drivers_url
        self._executor = executor
        self.epoch: int | None = None
        self._progress: dict[str, Progress] = {}

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
                    json.loads(row.resources)["cpu"],
                    State(row.simulation_state),
                    now - row.created_at,
                )
                for row in launches.live(c)
            )
        return Snapshot(now, busy, lent)

    def _busy(self, row: Any, now: float) -> Busy:
        spec = json.loads(row.spec)
        cores = 1 if row.dry_run else min(spec.get("workers") or self._cores, self._cores)
        return Busy(
            row.id,
            State(row.state),
            row.attempt,
            cores,
            bool(row.dry_run),
            row.created_at,
            row.not_before,
            row.started_at,
            spec.get("timeout"),
            row.claim is not None and row.claim_until > now,
            json.loads(row.provenance),
        )

    def move(self, id: str, current: State, following: State, **changes: Any) -> bool:
        """Move a simulation on; False if somebody else moved it."""
        try:
            self._write(lambda c: simulations.move(c, id, current, following, self._database.now(c), **changes))
        except Conflict as error:
            logger.info("%s", error.detail)
            return False
        self._bell.announce(id)
        return True

    def admit(self, one: Busy, *, ready: bool) -> bool:
        """Take a simulation off the queue: straight to LAUNCHING where there is nothing to stage."""

        def steps(c: Connection) -> None:
            now = self._database.now(c)
            simulations.move(c, one.id, State.QUEUED, State.STAGING, now, reason=None)
            if ready:
                simulations.move(c, one.id, State.STAGING, State.LAUNCHING, now)

        try:
            self._write(steps)
        except Conflict as error:
            logger.info("%s", error.detail)
            return False
        self._bell.announce(one.id)
        if not ready:
            self.stage(one.id)
        return True

    def launch(self, one: Busy) -> Launch:
        """Write a launch down and return it with its token, this once; the row commits before anyone is asked."""
        token = new_token()
        provenance = one.provenance
        dataset = provenance["dataset"]
        shipped = dataset.get("extends", dataset)

        def add(c: Connection) -> str:
            name = f"{one.id}x{one.attempt}x{launches.tries(c, one.id)}"
            _, done, _ = simulations.counts(c, one.id)
            launches.add(
                c,
                {
                    "id": name,
                    "simulation_id": one.id,
                    "attempt": one.attempt,
                    "executor": self._executor,
                    "token_hash": hashed(token),
                    "resources": json.dumps({"cpu": one.cores, "done": done}),
                    "state": "live",
                    "created_at": self._database.now(c),
                },
            )
            return name

        return Launch(
            id=self._write(add),
            simulation_id=one.id,
            attempt=one.attempt,
            url=self._url,
            workers=one.cores,
            runtime=provenance["runtime"]["name"],
            format=provenance["model"]["format"],
            dataset=shipped["name"],
            version=shipped["version"],
            play=playing.named(dataset),
            model_digest=provenance["model"]["digest"],
            model_key=key_of(provenance["model"]["digest"]),
            token=token,
        )

    def end_launch(self, launch: Lent) -> None:
        """A launch is over: its token dies, its leases return."""

        def end(c: Connection) -> None:
            launches.end(c, launch.id)
            for stage, start, fence in ranges.of_launch(c, launch.simulation, launch.id):
                ranges.give_back(c, stage, start, fence, witness=False, blame=False)

        self._write(end)

    def again(self, launch: Lent, reason: str) -> None:
        """A launch vanished while there was work: queue again, later each time nothing came of it, at last give up."""
        self.end_launch(launch)

        def requeue(c: Connection) -> None:
            now = self._database.now(c)
            _, done, _ = simulations.counts(c, launch.simulation)
            barren = launches.barren(c, launch.simulation, done)
            if barren >= HOPELESS:
                ranges.close_early(c, launch.simulation)
                words = f"{barren} attempts in a row came to nothing; the last: {reason}"
                simulations.move(c, launch.simulation, launch.state, State.ERRORED, now, reason=words)
            else:
                pause = 0.0 if barren == 0 else min(30.0, 0.25 * 2**barren)
                simulations.move(
                    c, launch.simulation, launch.state, State.QUEUED, now, reason=reason, not_before=now + pause
                )

        try:
            self._write(requeue)
        except Conflict as error:
            logger.info("%s", error.detail)
        self._bell.announce(launch.simulation)

    def close(self, id: str) -> bool:
        """Close the open stage if every task has a result; tell whether the simulation is ready to be collected."""
        with self._database.read() as c:
            stage = ranges.open_stage(c, id)
        if stage is None:
            return True
        return self._write(lambda c: ranges.close(c, stage.id))

    def stage(self, id: str) -> None:
        """Ring for the stager."""
        self._bell.enqueue("stage", id)

    def collect(self, id: str) -> None:
        """Ring for the collector."""
        self._bell.enqueue("collect", id)

    def give_up(self, one: Busy, following: State, reason: str) -> None:
        """End a simulation before its time."""

        def end(c: Connection) -> None:
            ranges.close_early(c, one.id)
            simulations.move(c, one.id, one.state, following, self._database.now(c), reason=reason)

        try:
            self._write(end)
        except Conflict as error:
            logger.info("%s", error.detail)
        self._bell.announce(one.id)

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
        progress = self._progress.setdefault(one.id, Progress())
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
        self._bell.announce(one.id)


class Progress:
    """What has arrived of one simulation, summed up as it came; a dispatcher that starts anew begins at nothing."""

    def __init__(self) -> None:
        self.arrived = 0
        self._done = 0
        self._failed = 0
        self._sums: dict[str, list[float]] = {}

    def add(self, page: list[tuple[int, Segment]]) -> None:
        """Take in segments with their numbers of arrival."""
        for number, segment in page:
            self.arrived = number
            self._done += segment.stop - segment.start
            self._failed += segment.failed
        merged((json.loads(segment.sketch) for _, segment in page if segment.sketch), self._sums)

    def describe(self, total: int, seconds: float) -> dict[str, Any]:
        """Return the event's body; rate in tasks a second, ETA in seconds."""
        rate = self._done / seconds if seconds > 0 else None
        return {
            "total": total,
            "done": self._done,
            "failed": self._failed,
            "rate": rate,
            "eta": (total - self._done) / rate if rate else None,
            "metrics": sketched(self._sums),
        }
