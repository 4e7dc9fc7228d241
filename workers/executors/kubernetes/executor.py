"""Kubernetes executor: creates a launch's objects and maps their state to launch statuses."""

import contextlib
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry

from common.errors import PlatformError, Unsupported
from core.domain.scheduling.launches import Launch, LaunchStatus, Phase, WarmLaunch
from core.domain.usage.granted_resources import WarmGrant
from kube.client import KubernetesClient
from kube.messages import ApiRefused, path_of
from workers.executors.base import ActiveLaunch, Missed
from workers.executors.kubernetes import manifests, names, warm_pool
from workers.executors.kubernetes.api_errors import error_of, missing_namespace
from workers.executors.kubernetes.api_queries import ApiQueries
from workers.executors.kubernetes.gang_pods import WORKERS
from workers.executors.kubernetes.launch_objects import LaunchObjects, creation_order
from workers.executors.kubernetes.manifests import ServedApis
from workers.executors.kubernetes.metrics import ClusterMetrics
from workers.executors.kubernetes.objects import (
    ATTEMPT,
    GANG,
    JOB,
    JOBSET,
    KINDS,
    QUEUE,
    SIMULATION,
    TOKEN_HASH,
    WARM,
    Owner,
    ResourceKind,
)
from workers.executors.kubernetes.options import KubernetesOptions
from workers.executors.kubernetes.status_cache import StatusCache
from workers.executors.kubernetes.watch import watch_launches

logger = logging.getLogger(__name__)

#: Cancelled ids to remember, so that a late submission does not create the launch again.
CANCELLED_KEPT = 10_000
#: Seconds that a new launch may be missing from the API server's watch cache.
API_CACHE_LAG = 5.0
#: A list of owners is reused for this many times the seconds that it took: listing takes at most a tenth of the time.
LIST_PAUSE_FACTOR = 9.0
#: Warm launches created per call: a submission in the same thread waits for them.
WARM_BATCH = 5
#: HTTP statuses that mean that the API server does not serve a kind, or is about to stop serving it.
_UNSERVED = frozenset({404, 405})


class KubernetesExecutor:
    """Runs launches in one cluster. Its state is a cache: a new instance finds all launches in the cluster.

    ``url``: the runner API's URL for warm runners, which do not know their launch yet.
    """

    def __init__(
        self, name: str, client: KubernetesClient, options: KubernetesOptions, metrics: ClusterMetrics, *, url: str = ""
    ) -> None:
        self.name, self.metrics = name, metrics
        self._url, self._ready_launches = url, warm_pool.ReadyLaunches()
        self._client, self._options, self._queries = client, options, ApiQueries(client, options)
        self._launch_objects = LaunchObjects(client, options)
        self._cancelled: OrderedDict[str, None] = OrderedDict()
        #: Kind and namespace of the owner by launch id, and the time of recent submissions.
        self._locations: dict[str, tuple[ResourceKind, str]] = {}
        self._submitted_at: dict[str, float] = {}
        self._owner_list: tuple[float, float, dict[str, tuple[ResourceKind, Owner]]] = (float("-inf"), 0.0, {})
        self._status_cache = StatusCache(self._queries)
        self._targets: tuple[ServedApis, Mapping[str, warm_pool.WarmTarget]] | None = None

    @property
    def options(self) -> KubernetesOptions:
        """Return the options of this executor."""
        return self._options

    def served(self) -> ServedApis:
        """Return which optional APIs the cluster serves."""
        return self._queries.served()

    def close(self) -> None:
        """Close the connections to the API server."""
        self._client.close()

    # -- submit

    def submit(self, launch: Launch) -> None:
        """Create the launch's objects: policies first, the owner last, so that a partial launch runs nothing."""
        if launch.id in self._cancelled:
            return
        if launch.id.startswith(warm_pool.PREFIX):
            try:
                self._mark_taken(launch.id, ActiveLaunch(launch.simulation_id, launch.attempt, launch.workers))
            except OSError as error:  # its runners work already; `maintain_warm_pool` sets the labels later
                logger.warning(
                    "Kubernetes executor %s: labels of warm launch %s are not set yet: %s", self.name, launch.id, error
                )
        else:
            self._create_launch(launch, self._objects(launch))

    def _objects(self, launch: Launch) -> list[dict[str, Any]]:
        try:
            return manifests.launch_objects(launch, self._options, self._queries.served())
        except Unsupported:
            self._queries.invalidate_discovery()  # the operator may have been installed since the last discovery
            return manifests.launch_objects(launch, self._options, self._queries.served())

    def _create_launch(self, launch: Launch, objects: Sequence[dict[str, Any]]) -> None:
        namespace = names.namespace(self._options.namespace, launch.project)
        objects = sorted(objects, key=creation_order)
        owner = objects[-1]
        if launch.gang is not None:
            owner["metadata"].setdefault("annotations", {})[GANG] = launch.gang.communication
        kind = KINDS[owner["kind"]]
        try:
            self._launch_objects.create(objects, namespace)
        except ApiRefused as refused:
            with contextlib.suppress(OSError):  # objects that remain are found and deleted as orphans
                self._launch_objects.delete(names.owner(launch.id), namespace, [kind])
            if refused.status in _UNSERVED and not missing_namespace(refused):  # the operator was uninstalled
                self._queries.invalidate_discovery()
                raise ConnectionError(f"The cluster does not serve {kind.plural} any more.") from None
            raise error_of(refused, namespace) from None
        self._locations[launch.id], self._submitted_at[launch.id] = (kind, namespace), time.monotonic()

    # -- warm pool

    def take_warm_launch(self, launch: Launch) -> WarmLaunch | None:
        """Pop a ready warm launch that matches, or None. Served from the local snapshot: no API call."""
        return self._ready_launches.take(launch)

    def maintain_warm_pool(self, taken: Mapping[str, ActiveLaunch]) -> bool:
        """Label warm launches in use, delete surplus ones, create missing ones; True if the pool is full."""
        targets = self._warm_targets()
        current = warm_pool.warm_owners(self._queries.owners(recent=True, label=WARM).values())
        plan = warm_pool.plan_pool(
            current, targets, taken=taken.keys(), handed_out=self._ready_launches.handed_out.keys()
        )
        self._ready_launches.fill(plan, targets, current)
        for owner in current:
            self._locations[owner.id] = (owner.kind, owner.namespace)
        for owner in plan.in_use:
            with contextlib.suppress(Missed, PlatformError):  # its end is observed, or the next call tries again
                self._mark_taken(owner.id, taken[owner.id])
        for owner in plan.surplus:
            self.cancel(owner.id)
        for target in plan.missing[:WARM_BATCH]:
            try:
                self._create_warm_launch(target)
            except (
                PlatformError
            ) as error:  # the next call tries again; a submission that needs the same objects gets the error
                logger.warning(
                    "Kubernetes executor %s: cannot create a warm launch for %s: %s",
                    self.name,
                    target.key,
                    error.detail,
                )
                break
        self.metrics.set_warm_pods(len(plan.ready), sum(target.pods for target in targets.values()))
        return plan.complete

    def warm_grants(self) -> Sequence[WarmGrant]:
        """Return what the warm pods have that no launch has taken; one in the cluster's queue has nothing yet."""
        if not self._options.warm:
            return ()
        current = warm_pool.warm_owners(self._queries.owners(label=WARM).values())
        return warm_pool.grants(current, self._warm_targets())

    def _warm_targets(self) -> Mapping[str, warm_pool.WarmTarget]:
        """Return the targets, made of manifests, once for what the cluster serves."""
        if not self._options.warm:
            return {}
        served = self._queries.served()
        if self._targets is None or self._targets[0] != served:
            self._targets = served, warm_pool.warm_targets(self._options, served, self._url)
        return self._targets[1]

    def _create_warm_launch(self, target: warm_pool.WarmTarget) -> None:
        """Create a warm launch."""
        launch, token_hash = target.new_launch()
        served = self._queries.served()
        objects = manifests.launch_objects(launch, self._options, served, worker_spec=target.worker_spec)
        owner = objects[0]["metadata"]
        owner["labels"] = owner["labels"] | {WARM: target.digest}
        owner["annotations"] = {TOKEN_HASH: token_hash}
        self._create_launch(launch, objects)

    def _mark_taken(self, id: str, taken: ActiveLaunch) -> None:
        """Label a warm launch as a simulation's. The label is set last: until then the next call repeats every step."""
        if taken.workers > self._options.workers_per_pod:
            try:
                self.resize(id, taken.workers)
            except Unsupported:
                raise Missed(f"The warm launch {id} has no pods.") from None
        owner = self._ready_launches.handed_out.get(id)
        location = self._locations.get(id) or (owner and (owner.kind, owner.namespace))
        if not location:
            return  # it was labelled before, and has been deleted since
        kind, namespace = location
        labels = {WARM: None, SIMULATION: names.label(taken.simulation), ATTEMPT: str(taken.attempt)}
        document = {"metadata": {"labels": labels, "annotations": {TOKEN_HASH: None}}}
        try:
            self._client.patch(path_of(kind.api, kind.plural, namespace, names.owner(id)), document)
        except ApiRefused as refused:
            if refused.status == 404:
                raise Missed(f"The warm launch {id} is gone.") from None
            raise error_of(refused, namespace) from None

    # -- observe

    def observe(self, ids: Iterable[str]) -> Mapping[str, LaunchStatus]:
        """Return statuses. Lists owners once; pods and events only of launches that are not plainly running."""
        requested = {id: None for id in ids if id not in self._cancelled}
        now = datetime.now(UTC)
        listed, owners = self._owners(requested)
        requested_owners = {id: pair for id, pair in owners.items() if id in requested}
        current = {
            id: owner for id, (_, owner) in requested_owners.items() if owner.metadata.deletion_timestamp is None
        }
        self._status_cache.refresh(current)
        statuses = {
            id: self._status_cache.status(owner, now=now, patience=self._options.patience)
            for id, owner in current.items()
        }
        for id in requested:
            if id not in requested_owners and listed - self._submitted_at.get(id, float("-inf")) < API_CACHE_LAG:
                statuses[id] = LaunchStatus(id=id, phase=Phase.STARTING)
        self._submitted_at = {id: at for id, at in self._submitted_at.items() if listed - at < API_CACHE_LAG}
        self._locations = {id: location for id, location in self._locations.items() if id in self._submitted_at}
        self._locations |= {id: (kind, owner.metadata.namespace) for id, (kind, owner) in requested_owners.items()}
        self.metrics.set_launch_phases(statuses.values())
        return statuses

    def _owners(self, ids: Collection[str]) -> tuple[float, dict[str, tuple[ResourceKind, Owner]]]:
        """Return owners and the time of their list; a slow list is reused (LIST_PAUSE_FACTOR)."""
        listed, rested, owners = self._owner_list
        began = time.monotonic()
        if began >= rested:
            owners = self._queries.owners(ids)
            ended = time.monotonic()
            self._owner_list = listed, rested, owners = began, ended + LIST_PAUSE_FACTOR * (ended - began), owners
        return listed, owners

    def orphans(self, known: Collection[str]) -> Sequence[str]:
        """Return ids of launches that have an owner or a policy in the cluster and are not in ``known``."""
        owners_by_id = self._queries.owners(recent=True)
        owners = {id for id, (_, owner) in owners_by_id.items() if not owner.metadata.deletion_timestamp}
        policies = {
            policy.metadata.launch for policy in self._queries.policies() if not policy.metadata.deletion_timestamp
        }
        # maintain_warm_pool decides which warm launches to keep.
        warm = {owner.id for owner in warm_pool.warm_owners(owners_by_id.values())}
        return sorted((owners | policies) - warm - set(known) - {""})

    @property
    def registry(self) -> CollectorRegistry:
        """Prometheus metrics of this cluster."""
        return self.metrics.registry

    def watch(self, wake: Callable[[], None], stop: threading.Event) -> None:
        """Call ``wake`` at every change of a launch until ``stop`` is set. Run it in its own thread."""
        watch_launches(self._client, self._options, self._queries, wake, stop)

    # -- resize and cancel

    def resize(self, launch_id: str, workers: int) -> None:
        """Set parallelism and completions of the Indexed Job; Kubernetes permits that while both stay equal."""
        kind, owner = self._queries.owners([launch_id], recent=True).get(launch_id, (None, None))
        if kind is None or owner is None:
            return
        if kind not in (JOBSET, JOB) or len(owner.spec.replicated_jobs) > 1 or owner.metadata.annotations.get(GANG):
            raise Unsupported("The size of a gang cannot change. Cancel the simulation and submit it again.")
        if QUEUE in owner.metadata.labels:  # Kueue would not admit more pods, and would keep quota for fewer
            raise Unsupported("Kueue admitted it with these workers. Cancel the simulation and submit it again.")
        pods = max(1, math.ceil(workers / self._options.workers_per_pod))
        namespace, name = owner.metadata.namespace, owner.metadata.name
        child = name if kind is JOB else f"{name}-{WORKERS}-0"
        try:
            self._client.patch(
                path_of(JOB.api, JOB.plural, namespace, child), {"spec": {"parallelism": pods, "completions": pods}}
            )
        except ApiRefused as refused:
            if refused.status == 404:
                raise Unsupported("The launch has no pods yet; try again once it runs.") from None
            raise error_of(refused, namespace) from None

    def cancel(self, launch_id: str) -> None:
        """Delete the launch's objects; the cluster's garbage collector deletes their dependents."""
        locations = [self._locations[launch_id]] if launch_id in self._locations else self._queries.locations(launch_id)
        for kind, namespace in locations:
            self._launch_objects.delete(names.owner(launch_id), namespace, [kind])
        self._locations.pop(launch_id, None)
        self._submitted_at.pop(launch_id, None)
        self._cancelled[launch_id] = (
            None  # only after all deletions: until then the launch is observed and can be cancelled again
        )
        while len(self._cancelled) > CANCELLED_KEPT:
            self._cancelled.popitem(last=False)
