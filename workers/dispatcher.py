"""The dispatcher: look, decide, act, wait for the notifier or the clock. One acts at a time; spares wait."""

import fcntl
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

from core.domain.admission import Room, admit
from core.domain.launches import LaunchStatus, Note, Phase
from core.domain.states import LIVE, State
from core.services.platform import Platform
from core.services.scheduling.dispatch import Dispatch
from core.services.scheduling.programs import Programs
from core.services.scheduling.snapshots import Busy, Lent, Snapshot
from core.store import leaders
from errors import ClusterFull, NotGranted, OriginFailed, PlatformError, StoreUnavailable
from workers import liveness
from workers.executors.base import Missed, Taken, Warm, Watched
from workers.managed_executor import ManagedExecutor

logger = logging.getLogger(__name__)

#: Seconds between two sums of progress.
TICK = 0.5
#: Seconds a new launch may go unseen before it counts as vanished.
GRACE = 15.0
#: Seconds an absent leader is waited for.
TERM = 10.0
#: Seconds until a launch is tried again that a place has no room for, or no more leave.
FULL, REGRANTED = 5.0, 10.0
#: Seconds between two sweeps of what has expired.
SWEEP = 60.0


class Dispatcher:
    """Moves simulations on. Every step is safe to repeat, so a crash between any two costs nothing but time."""

    def __init__(
        self,
        platform: Platform,
        dispatch: Dispatch,
        sites: Sequence[ManagedExecutor],
        *,
        run_dir: Path,
        ttl: float,
        interval: float,
    ) -> None:
        self._platform = platform
        self._dispatch = dispatch
        self._programs = Programs(platform.leases)
        self._sites = {site.name: site for site in sites}
        self._run_dir = run_dir
        self._ttl = ttl
        self._interval = interval
        self._ticked_at = 0.0
        self._looked_at = 0.0
        self._swept_at = float("-inf")
        self._expire_from = 0.0
        self._rung: dict[str, float] = {}
        self._told: Mapping[str, Any] = {}
        self._working = False

    def run(self, stop: Event) -> None:
        """Lead, then pass after pass until told to stop. A failed pass is logged, not fatal."""
        if not self._lead(stop):
            return
        for site in self._sites.values():
            if isinstance(site.executor, Watched):
                self._watch(site.executor, stop)
        self._expire_from = time.monotonic() + self._ttl  # whoever could not beat while we were away gets a whole term
        while not stop.is_set():
            try:
                self._renew()
                self.step()
            except Exception:
                logger.exception("a pass of the dispatcher failed; next try in %s s", self._interval)
                stop.wait(self._interval)
            self._platform.notifier.wait("dispatch", self._pause())

    def _watch(self, executor: Watched, stop: Event) -> None:
        """Have an executor wake the dispatcher when something of ours changes there; it is also polled."""
        wake = partial(self._platform.notifier.wake, "dispatch")
        Thread(target=executor.watch, args=(wake, stop), name="watch", daemon=True).start()

    def _pause(self) -> float:
        return TICK if self._working or not all(site.takes for site in self._sites.values()) else self._interval

    def _lead(self, stop: Event) -> bool:
        """Wait to be the one: a lock file where there is one machine (freed by kill -9).

        A leader row as well elsewhere.
        """
        self._run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = open(self._run_dir / "dispatch.lock", "w")
        while not stop.is_set():
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                self._beat()
                stop.wait(0.2)
        self._holder = f"{socket.gethostname()}:{os.getpid()}"
        while not stop.is_set() and not self._platform.database.embedded:
            if self._take():
                break
            self._beat()
            stop.wait(1.0)
        return not stop.is_set()

    def _beat(self) -> None:
        """Leave a sign of life for whoever watches this process."""
        liveness.beat(self._run_dir / "dispatch.beat")

    def _take(self) -> bool:
        database = self._platform.database
        self._dispatch.epoch = database.write(
            lambda c: leaders.take(c, "dispatch", self._holder, TERM, database.now(c))
        )
        return self._dispatch.epoch is not None

    def _renew(self) -> None:
        if not self._platform.database.embedded and not self._take():
            raise RuntimeError("another dispatcher leads")

    def step(self) -> None:
        """One pass: look, decide, act."""
        now = time.monotonic()
        if now - self._looked_at > 2 * self._ttl:
            self._expire_from = now + self._ttl  # we were stopped or starved, so drivers may have been too
        self._looked_at = now
        snapshot = self._dispatch.snapshot()
        self._working = bool(snapshot.busy)
        for site in self._sites.values():
            self._visit(site, snapshot)
        for launch in snapshot.launches:
            if launch.executor not in self._sites:
                words = f"the place it ran in, {launch.executor}, is configured no more"
                self._forsake(launch, words, counted=False)
        self._tell(snapshot)
        if now >= self._expire_from:
            self._expire(snapshot)
        self._platform.leases.settle()
        for one in snapshot.busy:
            self._advance(one, snapshot)
        self._admit()
        if now - self._ticked_at >= TICK:
            self._ticked_at = now
            self._dispatch.tick([one for one in snapshot.busy if one.state is State.RUNNING], snapshot.now)
        self._tidy()
        self._beat()

    # -- launches

    def _visit(self, site: ManagedExecutor, snapshot: Snapshot) -> None:
        """Look at one place, and bring what is there together with what should be."""
        launches = [launch for launch in snapshot.launches if launch.executor == site.name]
        if site.lost:
            words = f"{site.name} has not answered for {site.config.grace:g} s: {site.last_error}"
            for launch in launches:
                if self._forsake(launch, words):
                    site.comb_soon()  # it is removed once the place is back
        due = site.due_for_combing or site.keeping is not None
        if (launches or due or not site.healthy) and site.may_be_asked:
            site.do(lambda: self._tend(site, launches, {one.id: one for one in snapshot.busy}))

    def _tend(self, site: ManagedExecutor, launches: Sequence[Lent], busy: Mapping[str, Busy]) -> None:
        """Reconcile the launches of a place that answers, and cancel there what nobody knows of."""
        seen = site.executor.observe([launch.id for launch in launches])
        site.answered()
        for launch in launches:
            with _granted(site):
                self._reconcile(site, launch, seen.get(launch.id), busy.get(launch.simulation))
        if site.due_for_combing:
            # Asked for now, not from the snapshot: a launch is written down before it is submitted.
            for id in site.executor.strays(self._dispatch.living(site.name)):
                logger.info("%s: launch %s is over; it is cleared away", site.name, id)
                with _granted(site):
                    site.executor.cancel(id)
            site.combed()
        if (warm := site.keeping) is not None:
            lent = [one for one in self._dispatch.snapshot().launches if one.executor == site.name]
            site.kept(warm.keep({one.id: Taken(one.simulation, one.attempt, one.workers) for one in lent}))

    def _forsake(self, launch: Lent, words: str, *, counted: bool = True) -> bool:
        """Take up elsewhere what ran in a place that cannot be asked; tell whether it was let go.

        It is not where its runners live: they reach us, if we do not reach their place.
        """
        if launch.state not in LIVE:
            self._dispatch.end_launch(launch)
        elif self._dispatch.heartbeating(launch):
            return False
        else:
            self._dispatch.again(launch, words, counted=counted)
        return True

    def _tell(self, snapshot: Snapshot) -> None:
        """Write down how each place fares, when that has changed."""
        told = {
            site.name: {
                "kind": site.config.kind,
                "workers": site.config.workers,
                "in_use": snapshot.in_use(site.name),
                "healthy": int(site.healthy and site.last_error is None),
                "last_error": site.last_error,
            }
            for site in self._sites.values()
        }
        if told != self._told:
            self._dispatch.report_health(told)
            self._told = told

    def _reconcile(self, site: ManagedExecutor, launch: Lent, status: LaunchStatus | None, one: Busy | None) -> None:
        """Bring together what we know of a launch and what its executor sees."""
        over = status is None or status.phase is Phase.ENDED
        if status is not None:
            self._dispatch.tell(launch, status.notes)
        if launch.state not in LIVE:
            self._dispatch.end_launch(launch)  # first: should the cancelling fail, it is a stray, and found
            site.executor.cancel(launch.id)
        elif status is not None and status.hopeless and one is not None:
            self._dispatch.give_up(one, State.ERRORED, status.reason or "it cannot start here", launch)
            site.executor.cancel(launch.id)
        elif one is not None and not over and one.workers != launch.workers and one.state is State.RUNNING:
            self._resize(site, launch, one.workers)
        elif one is not None and one.state is State.LAUNCHING and one.unattended and _runs(status):
            self._programs.began(launch.id)
        elif over and (status is not None or launch.age > GRACE):
            if launch.state is State.RUNNING and self._dispatch.close(launch.simulation):
                self._dispatch.end_launch(launch)
                site.comb_soon()
                return
            if one is not None and one.unattended and status is not None and status.exit is not None:
                self._programs.ended(launch.id, status.exit, status.reason, launch.age)
                return  # the next pass finds that all is done
            reason = status.reason if status is not None and status.reason else "its processes vanished"
            logger.warning("launch %s ended early: %s", launch.id, reason)
            self._dispatch.again(launch, reason)
            site.executor.cancel(launch.id)

    def _resize(self, site: ManagedExecutor, launch: Lent, workers: int) -> None:
        """Give a launch the number of workers its simulation has now; where that cannot be, say so and leave it."""
        try:
            site.executor.resize(launch.id, workers)
        except PlatformError as error:
            words = error.detail or "It keeps its workers."
            self._dispatch.tell(launch, [Note(key=f"workers-{workers}", words=words)])
        else:
            self._dispatch.widen(launch, workers)

    def _expire(self, snapshot: Snapshot) -> None:
        for simulation in self._platform.leases.expire():
            for one in snapshot.busy:
                if one.id == simulation:
                    self._dispatch.give_up(one, State.ERRORED, "its drivers fell silent too often")

    # -- simulations

    def _advance(self, one: Busy, snapshot: Snapshot) -> None:
        launched = any(launch.simulation == one.id for launch in snapshot.launches)
        if one.state is State.RUNNING:
            if one.timeout is not None and one.started_at is not None and snapshot.now - one.started_at > one.timeout:
                self._dispatch.give_up(one, State.FAILED, f"not done within its timeout of {one.timeout:g} s")
            elif self._dispatch.close(one.id) and not one.claimed:
                self._again_and_again(one.id, self._dispatch.collect)
            elif not launched and not one.claimed:
                self._dispatch.stranded(one)
        elif one.state is State.STAGING and not one.claimed:
            self._again_and_again(one.id, self._dispatch.stage)
        elif one.state is State.LAUNCHING and not launched:
            self._launch(one)
        elif one.state is State.CANCELLING and not launched:
            self._dispatch.move(one.id, State.CANCELLING, State.CANCELLED)

    def _again_and_again(self, id: str, ring: Callable[[str], None]) -> None:
        """Ring for a job, and again every few seconds while nobody has claimed it."""
        now = time.monotonic()
        if now - self._rung.get(id, -10.0) >= 2.0:
            self._rung[id] = now
            ring(id)

    def _launch(self, one: Busy) -> None:
        site = self._sites.get(one.executor)
        if site is None:  # it is configured no more
            self._dispatch.move(one.id, State.LAUNCHING, State.QUEUED, reason="the place it was to run in is gone")
            return
        site.do(lambda: self._submit(site, one))

    def _submit(self, site: ManagedExecutor, one: Busy) -> None:
        waiting = site.executor.waiting if isinstance(site.executor, Warm) else lambda _: None
        launch = self._dispatch.launch(one, waiting)
        if launch is None:
            return
        if not launch.token:  # it waited: only its runners know that
            site.keep_soon()
        lent = Lent(launch.id, one.id, one.attempt, site.name, launch.workers, State.LAUNCHING, 0.0)
        try:
            site.executor.submit(launch)
        except Missed as error:
            self._dispatch.again(lent, str(error), counted=False)
        except (StoreUnavailable, OriginFailed) as error:  # what it needs may be back in a moment
            self._dispatch.again(lent, error.detail or "a store does not answer")
        except ClusterFull as error:  # as soon as others have let go of what it needs
            self._dispatch.again(lent, error.detail or "there is no room", counted=False, pause=FULL)
        except PlatformError as error:
            if isinstance(error, NotGranted) and one.attempt > 1:
                # It was granted before: somebody is at it, as when a namespace is deleted and made again.
                self._dispatch.again(lent, error.detail or "it is not granted", pause=REGRANTED)
                return
            self._dispatch.give_up(one, State.FAILED, error.detail or "cannot be launched", lent)
        except OSError as error:  # another place may take it, or this one later
            site.refused(error)
            self._dispatch.again(lent, f"{site.name} did not take it: {error}", counted=False)
        else:
            site.took()

    def _admit(self) -> None:
        snapshot = self._dispatch.snapshot()
        queued = {one.id: one for one in snapshot.busy if one.state is State.QUEUED}
        if not queued:
            return
        rooms = [
            Room(site.config, site.config.workers - snapshot.in_use(site.name), site.takes)
            for site in self._sites.values()
        ]
        for item, executor in list(admit(snapshot.queue, rooms, snapshot.now)):
            one = queued.pop(item.id)
            ready = self._platform.staging.ready(dict(one.provenance), executor)
            if self._dispatch.admit(one, executor, ready=ready) and ready:
                workers = self._sites[executor].config.workers_for(one.requested)
                self._launch(replace(one, executor=executor, workers=workers))

    def _tidy(self) -> None:
        """What is left to do for simulations that have ended, for datasets, and for what has expired."""
        if time.monotonic() - self._swept_at >= SWEEP:
            self._swept_at = time.monotonic()
            self._platform.notifier.enqueue("sweep", "expired")
        registering, fetching = self._platform.datasets.waiting()
        for id in registering:
            self._again_and_again(id, lambda id: self._platform.notifier.enqueue("register", id))
        for id in fetching:
            self._again_and_again(id, lambda id: self._platform.notifier.enqueue("prefetch", id))
        for id in self._dispatch.unfinished():
            self._again_and_again(id, self._dispatch.collect)
        for id in self._dispatch.deleted():
            self._platform.collecting.bury(id)
        for id in [id for id, at in self._rung.items() if time.monotonic() - at > 60.0]:
            del self._rung[id]


@contextmanager
def _granted(site: ManagedExecutor) -> Iterator[None]:
    """Do something to one launch; that it is not granted is said, and keeps nothing from the others."""
    try:
        yield
    except PermissionError as error:
        logger.warning("%s: %s", site.name, error)
        site.last_error = str(error)[:500]


def _runs(status: LaunchStatus | None) -> bool:
    return status is not None and status.phase is Phase.RUNNING
