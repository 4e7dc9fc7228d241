"""Lease client: takes ranges of tasks, renews them by heartbeat, reports their results, releases what is left.

A runner has one lease client, and a lease holder for each of its workers; a gang counts as one worker. Each holder has
a connection of its own, and heartbeats have another, so that a long report delays no heartbeat.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .framed_socket import Batch
from .runner_api_client import Connect, Credentials, RunnerApi, RunnerApiClient
from .runner_api_messages import DeathReport, GrantedLease, LeaseAnswer, LeaseEntry, LeaseStanding, ReportHeader

#: Seconds between two heartbeats while no lease is held.
IDLE_PAUSE = 1.0


class TaskPage(Protocol):
    """Shared with whatever runs the tasks of a lease: its current task, and the task to stop before."""

    stop: int

    @property
    def task(self) -> int:
        """The current task, -1 before the first."""


@dataclass(slots=True, eq=False)
class HeldLease:
    """A lease in progress: the cursor of its reported results, its current end, and the page of its tasks."""

    granted: GrantedLease
    page: TaskPage
    cursor: int
    stop: int
    lost: bool = False

    @property
    def unfinished(self) -> bool:
        """Whether tasks are left to report."""
        return not self.lost and self.cursor < self.stop

    def continues_with(self, results: Batch) -> bool:
        """Whether these results begin at the cursor; others were computed before it moved, or the lease was lost."""
        return not self.lost and results.since == self.cursor


class LeaseHolder:
    """The leases of one worker, one after the other. The heartbeat thread narrows the lease under the worker's work."""

    def __init__(self, name: str, client: RunnerApi) -> None:
        self.name = name
        self.client = client
        self._lock = threading.Lock()  # guards the lease and its page against the heartbeat thread
        self._held_lease: HeldLease | None = None
        self._offer: LeaseAnswer | None = None  # the answer to the last report, if it says how to go on
        self._stopping = False

    # -- the worker's own thread

    def next(self, page: TaskPage, rate: float | None = None) -> HeldLease | None:
        """Take the next lease; None if no work is left, or the worker is to stop."""
        while not self._stopping:
            answer, self._offer = self._offer or self.client.lease(self.name, rate), None
            if answer.ended:
                return None
            if answer.lease is not None:
                held_lease = HeldLease(answer.lease, page, answer.lease.cursor, answer.lease.stop)
                with self._lock:
                    self._held_lease = held_lease
                return held_lease
            if answer.retry_after is not None:
                time.sleep(answer.retry_after)  # short, and no event could wake the worker earlier
        return None

    def resume(self, held_lease: HeldLease) -> range | None:
        """Return the tasks still to run, with the page's stop set; None if none are left, or the worker is to stop."""
        with self._lock:
            if not held_lease.unfinished:
                self._held_lease = None
                return None
            if self._stopping:
                return None  # still held, so that it will be released
            held_lease.page.stop = held_lease.stop
            return range(held_lease.cursor, held_lease.stop)

    def report(self, held_lease: HeldLease, results: Batch, rate: float | None = None, *, last: bool = False) -> None:
        """Report results; afterwards ``held`` has its new cursor and stop, or is lost. ``last``: no next lease."""
        lease = held_lease.granted
        header = ReportHeader(
            worker=self.name,
            stage=lease.stage,
            start=lease.start,
            fencing_token=lease.fencing_token,
            since=results.since,
            to=results.to,
            lines=len(results.lines),
            artifacts=results.artifacts,
            stored=results.stored,
            checkpointed=results.checkpointed,
            sketch=results.sketch,
            rate=rate,
            next=not (last or self._stopping),
        )
        accepted, answer = self.client.report(header, results.lines, results.blobs)
        with self._lock:
            if answer.lost or answer.cursor is None or answer.stop is None:
                held_lease.lost = True
                held_lease.page.stop = 0
                return
            held_lease.cursor, held_lease.stop = answer.cursor, answer.stop
            # A repeated report finds its own cursor; any other cursor means that the range continues elsewhere.
            astray = not accepted and held_lease.cursor != results.to
            held_lease.page.stop = 0 if astray else min(held_lease.page.stop, held_lease.stop)
            if answer.lease is not None or answer.retry_after is not None or answer.ended:
                self._offer = answer

    def drop(self) -> HeldLease | None:
        """Give up the lease whose tasks can no longer be run; return it for ``report_death``, None if none is held."""
        with self._lock:
            held_lease, self._held_lease = self._held_lease, None
            return held_lease if held_lease is not None and not held_lease.lost else None

    def report_death(self, held_lease: HeldLease, task: int, reason: str) -> None:
        """Report that whatever ran the lease's tasks died by itself at ``task``; the runner API releases the lease."""
        lease = held_lease.granted
        self.client.report_death(
            DeathReport(
                worker=self.name,
                stage=lease.stage,
                start=lease.start,
                fencing_token=lease.fencing_token,
                task=task,
                reason=reason,
            )
        )

    # -- other threads

    def stop(self) -> None:
        """Make the worker stop after its current task: ``resume`` and ``next`` return None from now on."""
        with self._lock:
            self._stopping = True
            if self._held_lease is not None:
                self._held_lease.page.stop = 0

    @property
    def stopping(self) -> bool:
        """Whether the worker is to stop."""
        return self._stopping

    @property
    def at_work(self) -> bool:
        """Whether a lease is held that is not lost."""
        with self._lock:
            return self._held_lease is not None and not self._held_lease.lost

    @property
    def time_to_live(self) -> float | None:
        """Seconds the lease lives without a heartbeat; None if no lease is held."""
        with self._lock:
            return self._held_lease.granted.ttl if self._held_lease is not None else None

    def heartbeat(self) -> LeaseEntry | None:
        """Return the lease's entry for a heartbeat; None if no lease is held."""
        with self._lock:
            held_lease = self._held_lease
            return (
                _entry(held_lease.granted, held_lease.page.task)
                if held_lease is not None and not held_lease.lost
                else None
            )

    def apply(self, entry: LeaseEntry, standing: LeaseStanding) -> None:
        """Narrow the lease, or mark it as lost, as the runner API answered to this entry."""
        with self._lock:
            held_lease = self._held_lease
            if held_lease is None or (held_lease.granted.fencing_token, held_lease.granted.start) != (
                entry.fencing_token,
                entry.start,
            ):
                return
            if standing.lost:
                held_lease.lost = True
                held_lease.page.stop = 0
            else:
                held_lease.stop = min(held_lease.stop, standing.stop)
                held_lease.page.stop = min(held_lease.page.stop, held_lease.stop)

    def unfinished(self) -> list[LeaseEntry]:
        """Return the leases to release: the one at work, and one that was granted with the last report's answer."""
        with self._lock:
            held_lease, offer = self._held_lease, self._offer
            leases = [held_lease.granted] if held_lease is not None and held_lease.unfinished else []
            leases += [offer.lease] if offer is not None and offer.lease is not None else []
            return [_entry(lease) for lease in leases]


class LeaseClient:
    """The leases of a runner's workers. ``stop``: set when the runner ends; requests then raise LaunchOver.

    ``connected``: a client without another user; the first worker's requests go over its connection. ``on_looked``:
    called when people wait for looks into the tasks at work.
    """

    def __init__(
        self,
        credentials: Credentials,
        stop: threading.Event,
        connected: RunnerApi | None = None,
        connect: Connect = RunnerApiClient,
        on_looked: Callable[[], None] = lambda: None,
    ) -> None:
        self._connected = connected
        self._on_looked = on_looked
        self._connect = connect
        self._credentials = credentials
        self._stop = stop
        self._client = connect(credentials, stop)
        self._holders: list[LeaseHolder] = []

    @property
    def holders(self) -> Sequence[LeaseHolder]:
        """The workers' lease holders, in the order in which they were made."""
        return self._holders

    def holder(self, name: str) -> LeaseHolder:
        """Make the lease holder of a worker; the name is unique among the launch's workers."""
        client, self._connected = self._connected, None
        holder = LeaseHolder(name, client or self._connect(self._credentials, self._stop))
        self._holders.append(holder)
        return holder

    def renew(self) -> float:
        """Renew every lease and apply how each stands; return the seconds until the next heartbeat."""
        entries = [(holder, entry) for holder in list(self._holders) if (entry := holder.heartbeat()) is not None]
        if entries:
            standings = self._client.heartbeat([entry for _, entry in entries])
            for (holder, entry), standing in zip(entries, standings.leases, strict=True):
                holder.apply(entry, standing)
            if standings.looked:
                self._on_looked()
        lives = [life for holder in list(self._holders) if (life := holder.time_to_live) is not None]
        return min(lives) / 3 if lives else IDLE_PAUSE

    def release(self, time_out: float) -> None:
        """Release all unfinished leases without blame, in one request of at most ``time_out`` seconds."""
        entries = [entry for holder in list(self._holders) for entry in holder.unfinished()]
        if entries:
            self._connect(self._credentials, self._stop, patience=0.0, time_out=time_out).leave(entries)


def _entry(lease: GrantedLease, task: int = -1) -> LeaseEntry:
    return LeaseEntry(lease.stage, lease.start, lease.fencing_token, task)
