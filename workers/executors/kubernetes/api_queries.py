"""What an executor reads of a cluster: one list of owners, and more only where something does not simply run."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from workers.executors.kubernetes.client import Client, ListOf, Refused, path_of
from workers.executors.kubernetes.manifests import Served
from workers.executors.kubernetes.names import label
from workers.executors.kubernetes.objects import (
    EVENT,
    INSTALLATION,
    JOB,
    JOBSET,
    LAUNCH,
    MPIJOB,
    NODE,
    OWNERS,
    POD,
    POLICY,
    TRAINJOB,
    ApiGroup,
    ApiGroups,
    Event,
    Events,
    Kind,
    Node,
    Nodes,
    Owner,
    Owners,
    Plain,
    Plains,
    Pod,
    Pods,
    Workload,
    Workloads,
)
from workers.executors.kubernetes.options import Options
from workers.executors.kubernetes.status_messages import clean

L = TypeVar("L", bound=ListOf)

#: Seconds that what the cluster serves is believed; operators are installed while we run.
DISCOVERED = 300.0
#: Launches that one question about pods names, and pods that it is answered with: enough to say what is amiss.
ASKED, ANSWERED = 50, 500
#: Namespaces whose events are read in one look.
PLACES = 8


class Look:
    """The questions. All raise OSError where there is no answer, and PermissionError where we may not ask."""

    def __init__(self, client: Client, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._options, self._clock = client, options, clock
        self._ours = f"{INSTALLATION}={options.installation}"
        self._served: Served | None = None
        self._groups: Mapping[str, str] = {}
        self._until = float("-inf")

    def served(self) -> Served:
        """Return which of the kinds that we may use the cluster serves."""
        if self._served is None or self._clock() >= self._until:
            groups = self._discovered()
            versions = {one.group_version for group in groups for one in group.versions}
            self._groups = {group.name: group.preferred_version.version for group in groups}
            self._served = Served(
                jobset=JOBSET.api in versions,
                trainer=TRAINJOB.api in versions,
                mpijob=MPIJOB.api in versions,
                kueue="kueue.x-k8s.io" in self._groups,
                dra=self._groups.get("resource.k8s.io", ""),
            )
            self._until = self._clock() + DISCOVERED
        return self._served

    def _discovered(self) -> tuple[ApiGroup, ...]:
        try:
            return self._client.get("/apis", ApiGroups).groups
        except Refused as refused:
            raise PermissionError(
                f"The cluster does not tell what it serves ({refused.status}). Check its address, and that our account "
                f"has the ClusterRole system:discovery: {clean(refused.message)}"
            ) from None

    def forget(self) -> None:
        """Look anew at what is served: something was not, that should have been."""
        self._until = float("-inf")

    def kinds(self) -> list[Kind]:
        """Return the kinds of owners that are served, likeliest first."""
        served = self.served()
        there = {JOBSET: served.jobset, JOB: True, TRAINJOB: served.trainer, MPIJOB: served.mpijob}
        return [kind for kind in OWNERS if there[kind]]

    def owners(
        self, ids: Collection[str] | None = None, *, recent: bool = False, label: str = ""
    ) -> dict[str, tuple[Kind, Owner]]:
        """Return launches by id: all, or until these have been found, which most often takes one list.

        ``recent``: as it is now. Else as the API server's cache has it, which costs the cluster next to nothing.
        ``label``: only those that carry it.
        """
        query = {"labelSelector": self._ours + (f",{label}" if label else "")}
        if not recent:
            query["resourceVersion"] = "0"
        found: dict[str, tuple[Kind, Owner]] = {}
        for kind in self.kinds():
            for owner in self._owners(self.ask(kind, Owners, **query)):
                found.setdefault(owner.metadata.launch, (kind, owner))
            if ids is not None and all(id in found for id in ids):
                break
        return found

    @staticmethod
    def _owners(listed: Owners) -> Iterator[Owner]:
        # what an owner makes has its labels, too: a JobSet's jobs and a TrainJob's JobSet are not launches of their own
        for one in listed.items:
            if not any(reference.kind in _MAKERS for reference in one.metadata.owner_references):
                yield one

    def ask(self, kind: Kind, shape: type[L], namespace: str = "", **query: str) -> L:
        """List a kind, in all namespaces or in the one that all projects share; nothing where it is not served."""
        space = namespace or (self._options.namespace if self._options.shared_namespace else "")
        return self._list(path_of(kind.api, kind.plural, space), kind, shape, query)

    def nodes(self) -> tuple[Node, ...]:
        """Return the cluster's nodes."""
        return self._list(path_of(NODE.api, NODE.plural), NODE, Nodes, {"resourceVersion": "0"}).items

    def _list(self, path: str, kind: Kind, shape: type[L], query: Mapping[str, str]) -> L:
        try:
            return self._client.get(path, shape, **query)
        except Refused as refused:
            if refused.status == 404:
                self.forget()
                return shape()
            raise PermissionError(f"Our account may not list {kind.plural}. Grant it that: {refused.message}") from None

    def places(self, id: str) -> set[tuple[Kind, str]]:
        """Return what there is of a launch at this moment, owners and policies, and in which namespaces."""
        query = {"labelSelector": f"{self._ours},{LAUNCH}={label(id)}"}
        found = {(POLICY, one.metadata.namespace) for one in self.ask(POLICY, Plains, **query).items}
        for kind in self.kinds():
            found |= {(kind, one.metadata.namespace) for one in self._owners(self.ask(kind, Owners, **query))}
        return found

    def policies(self) -> tuple[Plain, ...]:
        """Return the policies of all launches: the first thing that is made of one, and the last that is left."""
        return self.ask(POLICY, Plains, labelSelector=f"{self._ours},{LAUNCH}").items

    def pods(self, ids: Sequence[str], *, all: bool = False) -> dict[str, list[Pod]]:
        """Return the pods of a few launches by id: as many as tell what is amiss, or all."""
        found: dict[str, list[Pod]] = {}
        named = f"{LAUNCH} in ({','.join(map(label, ids[:ASKED]))})"
        query = {"labelSelector": f"{self._ours},{named}", "limit": str(ANSWERED)}
        while ids:
            answer = self.ask(POD, Pods, **query)
            for pod in answer.items:
                found.setdefault(pod.metadata.launch, []).append(pod)
            if not (all and answer.metadata.after):
                break
            query["continue"] = answer.metadata.after
        return found

    def events(self, namespaces: Collection[str]) -> list[Event]:
        """Return the warnings of a few namespaces."""
        found: list[Event] = []
        for namespace in sorted(namespaces)[:PLACES]:
            query = {"fieldSelector": "type=Warning", "limit": str(ANSWERED)}
            found += self.ask(EVENT, Events, namespace, **query).items
        return found

    def workloads(self, namespaces: Collection[str]) -> dict[tuple[str, str], list[Workload]]:
        """Return what waits in the cluster's own queue, by namespace and name of its owner."""
        found: dict[tuple[str, str], list[Workload]] = {}
        if not namespaces or not self.served().kueue:
            return found
        kind = Kind("Workload", f"kueue.x-k8s.io/{self._groups['kueue.x-k8s.io']}", "workloads")
        for namespace in sorted(namespaces)[:PLACES]:
            for one in self.ask(kind, Workloads, namespace).items:
                for reference in one.metadata.owner_references:
                    found.setdefault((namespace, reference.name), []).append(one)
        return found


_MAKERS = frozenset({kind.name for kind in OWNERS})
