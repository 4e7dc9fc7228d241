"""Status cache: pods, events and Kueue workloads of launches that are not plainly running, polled at intervals."""

import time
from collections.abc import Mapping
from datetime import datetime

from core.domain.scheduling.launches import LaunchStatus, Phase
from workers.executors.kubernetes.api_queries import LAUNCHES_PER_QUERY, ApiQueries
from workers.executors.kubernetes.objects import ClusterEvent, Owner, Pod, Workload
from workers.executors.kubernetes.status_mapping import events_by_launch, launch_status, phase_of, settled

#: Seconds between polls of pods, and of events: there are many, and no request waits for them.
POD_INTERVAL, EVENT_INTERVAL = 1.0, 5.0


class StatusCache:
    """Polls in batches, so that a thousand launches that start cost as many calls as fifty."""

    def __init__(self, queries: ApiQueries) -> None:
        self._queries = queries
        self._pods: dict[str, list[Pod]] = {}
        self._events: dict[str, list[ClusterEvent]] = {}
        self._workloads: dict[str, list[Workload]] = {}
        self._next_pods = self._next_events = float("-inf")
        self._batch_start = 0

    def refresh(self, owners: Mapping[str, Owner]) -> None:
        """Poll a batch of unsettled launches when due; ended launches at once, before their pods are deleted."""
        unsettled = {id: owner for id, owner in owners.items() if not settled(owner)}
        self._pods = {id: pods for id, pods in self._pods.items() if id in unsettled}
        self._events = {id: events for id, events in self._events.items() if id in unsettled}
        self._workloads = {id: workloads for id, workloads in self._workloads.items() if id in unsettled}
        if not unsettled:
            return
        ended = [id for id, owner in unsettled.items() if phase_of(owner) is Phase.ENDED]
        # of MPIJobs all pods: the launcher, whose message decides, may be on the last page
        led = [id for id in ended if owners[id].spec.mpi_replica_specs]
        now, due = time.monotonic(), [id for id in ended if id not in led]
        if now >= self._next_pods:
            self._next_pods = now + POD_INTERVAL
            due += self._next_batch([id for id in unsettled if id not in ended])
        if due:
            self._pods.update({id: [] for id in due[:LAUNCHES_PER_QUERY]} | self._queries.pods(due))
        for id in led:
            self._pods[id] = self._queries.pods([id], all=True).get(id, [])
        if now >= self._next_events:
            self._next_events = now + EVENT_INTERVAL
            names = {owner.metadata.name: id for id, owner in unsettled.items()}
            spaces = {owner.metadata.namespace for owner in unsettled.values()}
            self._events = events_by_launch(self._queries.events(spaces), names)
            self._refresh_workloads(
                {id: owner for id, owner in unsettled.items() if phase_of(owner) is Phase.SUSPENDED}
            )

    def status(self, owner: Owner, *, now: datetime, patience: float) -> LaunchStatus:
        """Return a launch's status from its owner and the cached pods, events and workloads."""
        id = owner.metadata.launch
        pods, events, workloads = self._pods.get(id, []), self._events.get(id, []), self._workloads.get(id, [])
        return launch_status(owner, pods, events, workloads, now=now, patience=patience)

    def _next_batch(self, waiting: list[str]) -> list[str]:
        """Return the next batch for one query, round robin."""
        if len(waiting) <= LAUNCHES_PER_QUERY:
            return waiting
        self._batch_start = (self._batch_start + LAUNCHES_PER_QUERY) % len(waiting)
        return (waiting + waiting)[self._batch_start : self._batch_start + LAUNCHES_PER_QUERY]

    def _refresh_workloads(self, suspended: Mapping[str, Owner]) -> None:
        workloads = self._queries.workloads({owner.metadata.namespace for owner in suspended.values()})
        for id, owner in suspended.items():
            self._workloads[id] = workloads.get((owner.metadata.namespace, owner.metadata.name), [])
