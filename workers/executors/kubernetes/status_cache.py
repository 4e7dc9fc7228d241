"""A second look at launches that do not simply run: their pods, warnings and places in a queue, asked now and then."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime

from core.domain.launches import LaunchStatus, Phase
from workers.executors.kubernetes.api_queries import ASKED, Look
from workers.executors.kubernetes.objects import Event, Owner, Pod, Workload
from workers.executors.kubernetes.status_mapping import grouped, launch_status, phase_of, settled

#: Seconds between two looks at pods, and at warnings: these are many, and nobody waits for them.
PODS, WARNINGS = 1.0, 5.0


class Glance:
    """What was seen last; the looks are spread, so that a thousand launches that start cost no more than fifty."""

    def __init__(self, look: Look, clock: Callable[[], float] = time.monotonic) -> None:
        self._look, self._clock = look, clock
        self._pods: dict[str, list[Pod]] = {}
        self._events: dict[str, list[Event]] = {}
        self._workloads: dict[str, list[Workload]] = {}
        self._next_pods = self._next_events = float("-inf")
        self._turn = 0

    def refresh(self, owners: Mapping[str, Owner]) -> None:
        """Look again if it is time, at some of those that need it; those that ended at once, for they go soon."""
        unsettled = {id: owner for id, owner in owners.items() if not settled(owner)}
        self._pods = {id: pods for id, pods in self._pods.items() if id in unsettled}
        self._events = {id: events for id, events in self._events.items() if id in unsettled}
        self._workloads = {id: found for id, found in self._workloads.items() if id in unsettled}
        if not unsettled:
            return
        ended = [id for id, owner in unsettled.items() if phase_of(owner) is Phase.ENDED]
        counted = [id for id in ended if owners[id].spec.mpi_replica_specs]  # of these it matters which are missing
        now, due = self._clock(), [id for id in ended if id not in counted]
        if now >= self._next_pods:
            self._next_pods = now + PODS
            due += self._some([id for id in unsettled if id not in ended])
        if due:
            self._pods.update({id: [] for id in due[:ASKED]} | self._look.pods(due))
        for id in counted:
            self._pods[id] = self._look.pods([id], all=True).get(id, [])
        if now >= self._next_events:
            self._next_events = now + WARNINGS
            names = {owner.metadata.name: id for id, owner in unsettled.items()}
            spaces = {owner.metadata.namespace for owner in unsettled.values()}
            self._events = grouped(self._look.events(spaces), names)
            self._hold({id: owner for id, owner in unsettled.items() if phase_of(owner) is Phase.SUSPENDED})

    def status(self, owner: Owner, *, now: datetime, patience: float) -> LaunchStatus:
        """Bring together what is known of a launch."""
        id = owner.metadata.launch
        pods, events, workloads = self._pods.get(id, []), self._events.get(id, []), self._workloads.get(id, [])
        return launch_status(owner, pods, events, workloads, now=now, patience=patience)

    def _some(self, waiting: list[str]) -> list[str]:
        """Return as many as one question takes, others each time."""
        if len(waiting) <= ASKED:
            return waiting
        self._turn = (self._turn + ASKED) % len(waiting)
        return (waiting + waiting)[self._turn : self._turn + ASKED]

    def _hold(self, suspended: Mapping[str, Owner]) -> None:
        found = self._look.workloads({owner.metadata.namespace for owner in suspended.values()})
        for id, owner in suspended.items():
            self._workloads[id] = found.get((owner.metadata.namespace, owner.metadata.name), [])
