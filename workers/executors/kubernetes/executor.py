"""The executor of a Kubernetes cluster: launches become objects there, and what is seen of them becomes statuses."""

import contextlib
import itertools
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from core.domain.launches import Launch, LaunchStatus, Phase
from errors import PlatformError, Unsupported
from workers.executors.base import Missed, Taken, Waiting
from workers.executors.kubernetes import manifests, names, warm_pool
from workers.executors.kubernetes.api_errors import error_of, missing_namespace
from workers.executors.kubernetes.api_queries import Look
from workers.executors.kubernetes.client import Client, Refused, path_of
from workers.executors.kubernetes.gangs import WORKERS as REPLICATED
from workers.executors.kubernetes.manifests import Served
from workers.executors.kubernetes.metrics import Measures
from workers.executors.kubernetes.objects import (
    ATTEMPT,
    CPU,
    GANG,
    INDEX,
    JOB,
    JOBSET,
    KINDS,
    LONG_AGO,
    MEMORY,
    NAMESPACE,
    PARTS,
    POD,
    QUEUE,
    SECRET,
    SIMULATION,
    TOKEN_HASH,
    WARM,
    WORKERS,
    Kind,
    Owner,
    Plain,
    Pod,
    quantity,
)
from workers.executors.kubernetes.options import Options
from workers.executors.kubernetes.status_cache import Glance
from workers.executors.kubernetes.status_mapping import RUNNER, phase_of
from workers.executors.kubernetes.watch import Watch

logger = logging.getLogger(__name__)

#: Ids that are remembered as gone, so that a late submission does not bring one back.
REMEMBERED = 10_000
#: Seconds that a launch of ours may be missing in the API server's cache after it was made.
UNSEEN = 5.0
#: A list is good for so many times the seconds that it took: looking costs a tenth of a cluster's time at most.
REST = 9.0
#: Launches that are made to wait in one go: whoever submits meanwhile waits for that.
AT_ONCE = 5
#: How a cluster says that it serves no objects of a kind, or will soon serve none.
_UNSERVED = frozenset({404, 405})
#: Seconds between two looks whether a pod has begun to write a log; a pod that is silent so long is looked at again.
LOOK, SILENCE = 0.5, 60.0


class KubernetesExecutor:
    """Makes launches in one cluster. Nothing need be remembered: what is, spares calls.

    ``url``: where runners that do not know their launch yet wait for it.
    """

    def __init__(self, name: str, client: Client, options: Options, measures: Measures, *, url: str = "") -> None:
        self.name, self.measures = name, measures
        self._url, self._reserve = url, warm_pool.Reserve()
        self._client, self._options, self._look = client, options, Look(client, options)
        self._gone: OrderedDict[str, None] = OrderedDict()
        #: What was submitted or seen, and where, so that it need not be looked for; and when, if just submitted.
        self._places: dict[str, tuple[Kind, str]] = {}
        self._made: dict[str, float] = {}
        self._listed: tuple[float, float, dict[str, tuple[Kind, Owner]]] = (float("-inf"), 0.0, {})
        self._glance = Glance(self._look)

    @property
    def options(self) -> Options:
        """Options of the context that this executor serves."""
        return self._options

    def served(self) -> Served:
        """Return which of the kinds that launches are made of the cluster serves."""
        return self._look.served()

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    # -- begin

    def submit(self, launch: Launch) -> None:
        """Make its objects: what shields it first, what runs it last, so that half of it runs nothing."""
        if launch.id in self._gone:
            return
        if launch.id.startswith(warm_pool.PREFIX):
            try:
                self._occupy(launch.id, Taken(launch.simulation_id, launch.attempt, launch.workers))
            except OSError as error:  # its runners are at work all the same, and `keep` marks it later
                logger.warning("%s: %s could not be marked yet: %s", self.name, launch.id, error)
        else:
            self._begin(launch, self._objects(launch))

    def _objects(self, launch: Launch) -> list[dict[str, Any]]:
        try:
            return manifests.of(launch, self._options, self._look.served())
        except Unsupported:
            self._look.forget()  # an operator that it asks for may have been installed since
            return manifests.of(launch, self._options, self._look.served())

    def _begin(self, launch: Launch, objects: Sequence[dict[str, Any]]) -> None:
        namespace = names.namespace(self._options.namespace, launch.project)
        objects = sorted(objects, key=_turn)
        owner = objects[-1]
        owner["metadata"].setdefault("annotations", {}).update(_needs(launch))
        kind = KINDS[owner["kind"]]
        try:
            self._make(objects, namespace)
        except Refused as refused:
            with contextlib.suppress(OSError):  # what stays is a stray, and taken away as one
                self._unmake(names.owner(launch.id), namespace, [kind])
            if refused.status in _UNSERVED and not missing_namespace(refused):  # an operator was taken away
                self._look.forget()
                raise ConnectionError(f"The cluster serves no {kind.plural} any more.") from None
            raise error_of(refused, namespace) from None
        self._places[launch.id], self._made[launch.id] = (kind, namespace), time.monotonic()

    # -- keep warm

    def waiting(self, launch: Launch) -> Waiting | None:
        """Return one of those that were ready when last looked at."""
        return self._reserve.take(launch)

    def keep(self, taken: Mapping[str, Taken]) -> bool:
        """Look at what waits, mark what was taken, take away what is of no use, make what lacks."""
        wanted = warm_pool.wishes(self._options, self._look.served(), self._url) if self._options.warm else {}
        there = warm_pool.seen(self._look.owners(recent=True, label=WARM).values())
        plan = warm_pool.plan(there, wanted, taken=taken.keys(), given=self._reserve.given.keys())
        self._reserve.fill(plan, wanted, there)
        for one in there:
            self._places[one.id] = (one.kind, one.namespace)
        for one in plan.marked:
            with contextlib.suppress(Missed, PlatformError):  # then it is seen to have ended, or its width asked again
                self._occupy(one.id, taken[one.id])
        for one in plan.dropped:
            self.cancel(one.id)
        for wish in plan.lacking[:AT_ONCE]:
            try:
                self._await(wish)
            except PlatformError as error:  # it is tried again; who submits meanwhile hears it, too
                logger.warning("%s: no pod can wait for %s: %s", self.name, wish.fit, error.detail)
                break
        self.measures.waits(len(plan.ready), sum(wish.pods for wish in wanted.values()))
        return plan.whole

    def _await(self, wish: warm_pool.Wish) -> None:
        """Make a launch that waits."""
        launch, token_hash = wish.one()
        objects = manifests.of(launch, self._options, self._look.served(), kit=wish.kit)
        owner = objects[0]["metadata"]
        owner["labels"] = owner["labels"] | {WARM: wish.digest}
        owner["annotations"] = {TOKEN_HASH: token_hash}
        self._begin(launch, objects)

    def _occupy(self, id: str, taken: Taken) -> None:
        """Mark what waited as a simulation's. The mark is last: until then whoever looks next does all of it again."""
        if taken.workers > self._options.seats:
            try:
                self.resize(id, taken.workers)
            except Unsupported:
                raise Missed(f"What waited as {id} has no pods.") from None
        given = self._reserve.given.get(id)
        place = self._places.get(id) or (given and (given.kind, given.namespace))
        if not place:
            return  # it was marked, and by now taken away, too
        kind, namespace = place
        labels = {WARM: None, SIMULATION: names.label(taken.simulation), ATTEMPT: str(taken.attempt)}
        document = {"metadata": {"labels": labels, "annotations": {TOKEN_HASH: None}}}
        try:
            self._client.patch(path_of(kind.api, kind.plural, namespace, names.owner(id)), document)
        except Refused as refused:
            if refused.status == 404:
                raise Missed(f"What waited as {id} is gone.") from None
            raise error_of(refused, namespace) from None

    # -- make

    def _make(self, objects: Sequence[dict[str, Any]], namespace: str) -> None:
        """Create them one after the other, all owned by the first: when that goes, the cluster sweeps the rest."""
        whose: list[dict[str, str]] = []
        for one in objects:
            document = {**one, "metadata": {**one["metadata"], "namespace": namespace, "ownerReferences": whose}}
            uid = self._create(document, namespace)
            if uid is None:
                return  # it is just being deleted, and is not brought back
            if not whose:
                name = one["metadata"]["name"]
                whose = [{"apiVersion": one["apiVersion"], "kind": one["kind"], "name": name, "uid": uid}]

    def _create(self, document: dict[str, Any], namespace: str) -> str | None:
        """Create an object; return its identity, also if it was there, or None if it is leaving."""
        kind = KINDS[document["kind"]]
        path = path_of(document["apiVersion"], kind.plural, namespace)
        try:
            answer = self._client.create(path, document)
        except Refused as refused:
            if refused.reason == "AlreadyExists":
                return self._identity(kind, namespace, document["metadata"]["name"])
            if not (missing_namespace(refused) and self._options.create_namespaces):
                raise
            self._open_namespace(namespace)
            answer = self._client.create(path, document)
        return msgspec.json.decode(answer, type=Plain).metadata.uid

    def _identity(self, kind: Kind, namespace: str, name: str) -> str | None:
        if kind is SECRET:
            return ""  # it is never read, and owns nothing
        found = self._client.get(path_of(kind.api, kind.plural, namespace, name), Plain).metadata
        return found.uid if found.deletion_timestamp is None else None

    def _open_namespace(self, namespace: str) -> None:
        labels = {
            "windtunnel/installation": self._options.installation,
            "pod-security.kubernetes.io/enforce": "restricted",
        }
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
        try:
            self._client.create(path_of(NAMESPACE.api, NAMESPACE.plural), document)
        except Refused as refused:
            if refused.reason != "AlreadyExists":
                raise

    # -- look

    def observe(self, ids: Iterable[str]) -> Mapping[str, LaunchStatus]:
        """List owners once; ask for pods and warnings only where something does not simply run."""
        asked = {id: None for id in ids if id not in self._gone}
        now = datetime.now(UTC)
        listed, owners = self._owners(asked)
        found = {id: one for id, one in owners.items() if id in asked}
        there = {id: owner for id, (_, owner) in found.items() if owner.metadata.deletion_timestamp is None}
        self._glance.refresh(there)
        seen = {id: self._glance.status(owner, now=now, patience=self._options.patience) for id, owner in there.items()}
        for id in asked:
            if id not in found and listed - self._made.get(id, float("-inf")) < UNSEEN:
                seen[id] = LaunchStatus(id=id, phase=Phase.STARTING)
        self._made = {id: at for id, at in self._made.items() if listed - at < UNSEEN}
        self._places = {id: place for id, place in self._places.items() if id in self._made}
        self._places |= {id: (kind, owner.metadata.namespace) for id, (kind, owner) in found.items()}
        self.measures.saw(seen.values())
        return seen

    def _owners(self, asked: Collection[str]) -> tuple[float, dict[str, tuple[Kind, Owner]]]:
        """Return all owners and when they were listed; what took long to list is not listed again at once."""
        listed, rested, owners = self._listed
        began = time.monotonic()
        if began >= rested:
            owners = self._look.owners(asked)
            ended = time.monotonic()
            self._listed = listed, rested, owners = began, ended + REST * (ended - began), owners
        return listed, owners

    def strays(self, known: Collection[str]) -> Sequence[str]:
        """List what runs and what shields, all that a launch is found by."""
        found = self._look.owners(recent=True)
        owners = {id for id, (_, one) in found.items() if not one.metadata.deletion_timestamp}
        shields = {one.metadata.launch for one in self._look.policies() if not one.metadata.deletion_timestamp}
        waiting = {one.id for one in warm_pool.seen(found.values())}  # `keep` knows which of them are of use
        return sorted((owners | shields) - waiting - set(known) - {""})

    def capacity(self) -> Mapping[str, int]:
        """Return what the nodes have, or we are told to reckon with, less what our own launches were made for.

        What waits counts as well: the cluster holds its cores, whoever gets them.
        """
        cores, memory = self._total()
        for _, owner in self._look.owners(recent=True).values():
            if phase_of(owner) is not Phase.ENDED and owner.metadata.launch not in self._gone:
                held = owner.metadata.annotations
                workers = float(held.get(WORKERS, 0))
                cores -= workers * float(held.get(CPU, 0))
                memory -= workers * float(held.get(MEMORY, 0))
        return {"cpu": max(0, math.floor(cores)), "memory": max(0, math.floor(memory))}

    def _total(self) -> tuple[float, float]:
        wanted, told = self._options.node_selector, float(self._options.cores)
        try:
            nodes = self._look.nodes()
        except PermissionError:
            if not told:
                raise
            return told, 0.0
        fit = [
            node.status.allocatable for node in nodes if node.open and wanted.items() <= node.metadata.labels.items()
        ]
        cores = sum(quantity(one.get("cpu", 0)) for one in fit)
        return told or cores, sum(quantity(one.get("memory", 0)) for one in fit)

    @property
    def registry(self) -> CollectorRegistry:
        """What was measured of this cluster."""
        return self.measures.registry

    def watch(self, ring: Callable[[], None], stop: threading.Event) -> None:
        """Ring whenever a launch changes, until told to stop: for a thread of its own."""
        Watch(self._client, self._options, self._look, ring).run(stop)

    # -- change and end

    def resize(self, launch_id: str, workers: int) -> None:
        """Make more pods of the one Indexed Job, or fewer, as one may while both its numbers stay the same."""
        kind, owner = self._look.owners([launch_id], recent=True).get(launch_id, (None, None))
        if kind is None or owner is None:
            return
        if kind not in (JOBSET, JOB) or len(owner.spec.replicated_jobs) > 1 or owner.metadata.annotations.get(GANG):
            raise Unsupported("A gang keeps its width: its replicas know each other by number. Submit it anew.")
        if QUEUE in owner.metadata.labels:  # more pods of its job would be none of the queue's, fewer a quota unused
            raise Unsupported("The cluster's own queue knows it by its width, which it keeps. Submit it anew.")
        pods = max(1, math.ceil(workers / self._options.seats))
        here, name = owner.metadata.namespace, owner.metadata.name
        child = name if kind is JOB else f"{name}-{REPLICATED}-0"
        try:
            self._client.patch(
                path_of(JOB.api, JOB.plural, here, child), {"spec": {"parallelism": pods, "completions": pods}}
            )
            noted = {"metadata": {"annotations": {WORKERS: str(workers)}}}
            self._client.patch(path_of(kind.api, kind.plural, here, name), noted)
        except Refused as refused:
            if refused.status == 404:
                raise Unsupported("Its pods are not there yet; ask again once it runs.") from None
            raise error_of(refused, here) from None

    def cancel(self, launch_id: str) -> None:
        """Delete what was made of it, at once for all to see; the cluster sweeps up what that owned."""
        places = [self._places[launch_id]] if launch_id in self._places else self._look.places(launch_id)
        for kind, namespace in places:
            self._unmake(names.owner(launch_id), namespace, [kind])
        self._places.pop(launch_id, None)
        self._made.pop(launch_id, None)
        self._gone[launch_id] = None  # only now: until all is deleted it is still to be seen, and cancelled again
        while len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)

    def _unmake(self, name: str, namespace: str, owners: Iterable[Kind]) -> None:
        """Delete what has a launch's name in a namespace: what runs first, what shields it last."""
        for kind in [*owners, *reversed(PARTS)]:
            try:
                self._client.delete(path_of(kind.api, kind.plural, namespace, name))
            except Refused as refused:
                raise PermissionError(str(error_of(refused, namespace))) from None

    # -- listen

    def logs(self, launch_id: str, replica: int) -> Iterator[bytes]:
        """Follow what the replica's runner says, or its program where it has none; nothing once it is gone."""
        told, of = 0, ""
        while (pod := self._pod(launch_id, replica)) is not None:
            if of != pod.metadata.uid:  # another took its place
                told, of = 0, pod.metadata.uid
            parts = [one.name for one in pod.spec.containers]
            container = RUNNER if RUNNER in parts else parts[0]
            path = path_of(POD.api, POD.plural, pod.metadata.namespace, pod.metadata.name, "log")
            try:
                lines = self._client.lines(path, quiet=SILENCE, container=container, follow="true")
                for line in itertools.islice(lines, told, None):
                    told += 1
                    yield line
                return
            except TimeoutError:
                continue  # it is silent: perhaps its node is gone, and another pod there
            except Refused as refused:
                if refused.status not in (400, 404):  # 400: its container is not made yet
                    raise PermissionError(str(error_of(refused, pod.metadata.namespace))) from None
            time.sleep(LOOK)

    def _pod(self, launch_id: str, replica: int) -> Pod | None:
        """Return the newest pod of this number, waiting for it while the launch may still make one."""
        while True:
            pods = [one for one in self._look.pods([launch_id]).get(launch_id, []) if _number(one) == replica]
            if pods:
                return max(pods, key=lambda one: one.metadata.creation_timestamp or LONG_AGO)
            _, owner = self._look.owners([launch_id], recent=True).get(launch_id, (None, None))
            if owner is None or phase_of(owner) is Phase.ENDED:
                return None
            time.sleep(LOOK)


def _turn(document: Mapping[str, Any]) -> int:
    """Order of making: policies, then secrets and the like, then what runs."""
    kind = KINDS[document["kind"]]
    return PARTS.index(kind) if kind in PARTS else len(PARTS)


def _needs(launch: Launch) -> dict[str, str]:
    """Note on the owner what it takes, so that whoever looks knows without us."""
    gang = launch.gang
    workers = gang.size * gang.slices if gang else launch.workers
    whole = {WORKERS: str(workers), CPU: str(launch.placement.cpu), MEMORY: str(launch.placement.memory)}
    return whole | ({GANG: gang.communication} if gang else {})


def _number(pod: Pod) -> int:
    return int(pod.metadata.labels.get(INDEX, "0"))
