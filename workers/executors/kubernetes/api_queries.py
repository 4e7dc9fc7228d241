"""API queries: one list of owners, and pods, events and workloads only of launches that are not plainly running."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from kube.client import KubernetesClient, ListResponse
from kube.messages import ApiRefused, path_of
from workers.executors.kubernetes.manifests import ServedApis
from workers.executors.kubernetes.names import label
from workers.executors.kubernetes.objects import (
    EVENT,
    INSTALLATION,
    JOB,
    JOBSET,
    LAUNCH,
    MPIJOB,
    OWNERS,
    POD,
    POLICY,
    TRAINJOB,
    ApiGroup,
    ApiGroups,
    ClusterEvent,
    ClusterEventList,
    MetadataOnly,
    MetadataOnlyList,
    Owner,
    OwnerList,
    Pod,
    PodList,
    ResourceKind,
    Workload,
    WorkloadList,
)
from workers.executors.kubernetes.options import KubernetesOptions
from workers.executors.kubernetes.status_messages import clean

L = TypeVar("L", bound=ListResponse)

#: Seconds that discovered API groups are cached; operators are installed while the platform runs.
DISCOVERY_TTL = 300.0
#: Launches per query of pods, and pods per page: enough to find out what is wrong.
LAUNCHES_PER_QUERY, PODS_PER_PAGE = 50, 500
#: Namespaces whose events or workloads are listed in one poll.
NAMESPACES_PER_POLL = 8


class ApiQueries:
    """Read queries. All raise OSError if the API server does not answer, PermissionError if RBAC forbids the query."""

    def __init__(self, client: KubernetesClient, options: KubernetesOptions) -> None:
        self._client, self._options = client, options
        self._installation_label = f"{INSTALLATION}={options.installation}"
        self._served: ServedApis | None = None
        self._groups: Mapping[str, str] = {}
        self._until = float("-inf")

    def served(self) -> ServedApis:
        """Return which optional APIs the cluster serves (cached)."""
        if self._served is None or time.monotonic() >= self._until:
            groups = self._discover()
            versions = {item.group_version for group in groups for item in group.versions}
            self._groups = {group.name: group.preferred_version.version for group in groups}
            self._served = ServedApis(
                jobset=JOBSET.api in versions,
                trainer=TRAINJOB.api in versions,
                mpijob=MPIJOB.api in versions,
                kueue="kueue.x-k8s.io" in self._groups,
                dra=self._groups.get("resource.k8s.io", ""),
            )
            self._until = time.monotonic() + DISCOVERY_TTL
        return self._served

    def _discover(self) -> tuple[ApiGroup, ...]:
        try:
            return self._client.get("/apis", ApiGroups).groups
        except ApiRefused as refused:
            raise PermissionError(
                f"API discovery failed ({refused.status}). Check the cluster's address, and that the platform "
                f"has the ClusterRole system:discovery: {clean(refused.message)}"
            ) from None

    def invalidate_discovery(self) -> None:
        """Expire the cached discovery: a kind was missing that should be served."""
        self._until = float("-inf")

    def owner_kinds(self) -> list[ResourceKind]:
        """Return the served kinds of owners, most likely first."""
        served = self.served()
        is_served = {JOBSET: served.jobset, JOB: True, TRAINJOB: served.trainer, MPIJOB: served.mpijob}
        return [kind for kind in OWNERS if is_served[kind]]

    def owners(
        self, ids: Collection[str] | None = None, *, recent: bool = False, label: str = ""
    ) -> dict[str, tuple[ResourceKind, Owner]]:
        """Return owners by launch id: all, or until ``ids`` are found, which usually takes one list.

        ``recent``: a consistent read; otherwise from the API server's watch cache, which costs the cluster almost
        nothing. ``label``: only owners that have this label.
        """
        query = {"labelSelector": self._installation_label + (f",{label}" if label else "")}
        if not recent:
            query["resourceVersion"] = "0"
        by_launch: dict[str, tuple[ResourceKind, Owner]] = {}
        for kind in self.owner_kinds():
            for owner in self._owners(self.list_objects(kind, OwnerList, **query)):
                by_launch.setdefault(owner.metadata.launch, (kind, owner))
            if ids is not None and all(id in by_launch for id in ids):
                break
        return by_launch

    @staticmethod
    def _owners(listed: OwnerList) -> Iterator[Owner]:
        # An owner's children inherit its labels: a JobSet's Jobs and a TrainJob's JobSet are not launches.
        for item in listed.items:
            if not any(reference.kind in _MAKERS for reference in item.metadata.owner_references):
                yield item

    def list_objects(self, kind: ResourceKind, shape: type[L], namespace: str = "", **query: str) -> L:
        """List a kind in all namespaces, or in the shared namespace; empty where the kind is not served."""
        namespace_or_all = namespace or (self._options.namespace if self._options.shared_namespace else "")
        return self._list(path_of(kind.api, kind.plural, namespace_or_all), kind, shape, query)

    def _list(self, path: str, kind: ResourceKind, shape: type[L], query: Mapping[str, str]) -> L:
        try:
            return self._client.get(path, shape, **query)
        except ApiRefused as refused:
            if refused.status == 404:
                self.invalidate_discovery()
                return shape()
            raise PermissionError(
                f"The platform's account may not list {kind.plural}; grant it that: {refused.message}"
            ) from None

    def locations(self, id: str) -> set[tuple[ResourceKind, str]]:
        """Return kinds and namespaces of a launch's owners and policies (a consistent read)."""
        query = {"labelSelector": f"{self._installation_label},{LAUNCH}={label(id)}"}
        kinds_and_namespaces = {
            (POLICY, item.metadata.namespace) for item in self.list_objects(POLICY, MetadataOnlyList, **query).items
        }
        for kind in self.owner_kinds():
            kinds_and_namespaces |= {
                (kind, item.metadata.namespace) for item in self._owners(self.list_objects(kind, OwnerList, **query))
            }
        return kinds_and_namespaces

    def policies(self) -> tuple[MetadataOnly, ...]:
        """Return all launches' policies: a policy is created first and deleted last."""
        return self.list_objects(POLICY, MetadataOnlyList, labelSelector=f"{self._installation_label},{LAUNCH}").items

    def pods(self, ids: Sequence[str], *, all: bool = False) -> dict[str, list[Pod]]:
        """Return pods of at most LAUNCHES_PER_QUERY launches by id: the first page, or all."""
        by_launch: dict[str, list[Pod]] = {}
        launches = f"{LAUNCH} in ({','.join(map(label, ids[:LAUNCHES_PER_QUERY]))})"
        query = {"labelSelector": f"{self._installation_label},{launches}", "limit": str(PODS_PER_PAGE)}
        while ids:
            page = self.list_objects(POD, PodList, **query)
            for pod in page.items:
                by_launch.setdefault(pod.metadata.launch, []).append(pod)
            if not (all and page.metadata.after):
                break
            query["continue"] = page.metadata.after
        return by_launch

    def events(self, namespaces: Collection[str]) -> list[ClusterEvent]:
        """Return warning events of at most NAMESPACES_PER_POLL namespaces."""
        events: list[ClusterEvent] = []
        for namespace in sorted(namespaces)[:NAMESPACES_PER_POLL]:
            query = {"fieldSelector": "type=Warning", "limit": str(PODS_PER_PAGE)}
            events += self.list_objects(EVENT, ClusterEventList, namespace, **query).items
        return events

    def workloads(self, namespaces: Collection[str]) -> dict[tuple[str, str], list[Workload]]:
        """Return Kueue workloads by namespace and owner name."""
        by_owner: dict[tuple[str, str], list[Workload]] = {}
        if not namespaces or not self.served().kueue:
            return by_owner
        kind = ResourceKind("Workload", f"kueue.x-k8s.io/{self._groups['kueue.x-k8s.io']}", "workloads")
        for namespace in sorted(namespaces)[:NAMESPACES_PER_POLL]:
            for item in self.list_objects(kind, WorkloadList, namespace).items:
                for reference in item.metadata.owner_references:
                    by_owner.setdefault((namespace, reference.name), []).append(item)
        return by_owner


_MAKERS = frozenset({kind.name for kind in OWNERS})
