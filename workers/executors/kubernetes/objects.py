"""What is read of Kubernetes's objects: the few fields that decisions are made of, and where each kind is served."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from workers.executors.kubernetes.client import ListOf

#: Labels and annotations of ours.
INSTALLATION, LAUNCH = "windtunnel/installation", "windtunnel/launch"
WORKERS, CPU, MEMORY, GANG = "windtunnel/workers", "windtunnel/cpu", "windtunnel/memory", "windtunnel/gang"
#: A label of what waits for a launch: a digest of what it was made from; and what is kept of its token.
WARM, TOKEN_HASH = "windtunnel/warm", "windtunnel/token-hash"
SIMULATION, ATTEMPT = "windtunnel/simulation", "windtunnel/attempt"
INDEX = "batch.kubernetes.io/job-completion-index"
#: Kueue's label of what waits in a queue; it puts it on by itself where a namespace has a queue for all.
QUEUE = "kueue.x-k8s.io/queue-name"
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Kind:
    """Where objects of a kind are served."""

    name: str
    api: str
    plural: str


JOBSET = Kind("JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets")
JOB = Kind("Job", "batch/v1", "jobs")
TRAINJOB = Kind("TrainJob", "trainer.kubeflow.org/v1alpha1", "trainjobs")
MPIJOB = Kind("MPIJob", "kubeflow.org/v2beta1", "mpijobs")
POLICY = Kind("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies")
SECRET = Kind("Secret", "v1", "secrets")
NAMESPACE = Kind("Namespace", "v1", "namespaces")
POD = Kind("Pod", "v1", "pods")
EVENT = Kind("Event", "v1", "events")
NODE = Kind("Node", "v1", "nodes")

#: What runs a launch, likeliest first.
OWNERS = (JOBSET, JOB, TRAINJOB, MPIJOB)
#: What else a launch may be made of.
PARTS = (POLICY, SECRET)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (*OWNERS, *PARTS)}


class Read(msgspec.Struct, rename="camel", frozen=True):
    """The base of what is read: fields are named as here, in camel case; others are skipped."""


class Reference(Read, frozen=True):
    """Whose an object is."""

    kind: str = ""
    name: str = ""


class Metadata(Read, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[Reference, ...] = ()

    @property
    def launch(self) -> str:
        """The launch it is of, or nothing."""
        return self.labels.get(LAUNCH, "")


class Condition(Read, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None


class Group(Read, frozen=True):
    """Jobs of one role in a JobSet or a TrainJob."""

    name: str = ""
    replicas: int = 1
    ready: int = 0
    succeeded: int = 0
    failed: int = 0


class RunPolicy(Read, frozen=True):
    suspend: bool | None = None


class OwnerSpec(Read, frozen=True):
    suspend: bool | None = None
    run_policy: RunPolicy = RunPolicy()  # an MPIJob's
    parallelism: int | None = None  # a Job's
    completions: int | None = None
    replicated_jobs: tuple[Group, ...] = ()  # a JobSet's
    mpi_replica_specs: dict[str, Group] = {}  # an MPIJob's, by role


class OwnerStatus(Read, frozen=True):
    conditions: tuple[Condition, ...] | None = None
    ready: int | None = None  # a Job's pods
    succeeded: int | None = None
    replicated_jobs_status: tuple[Group, ...] | None = None  # a JobSet's jobs
    jobs_status: tuple[Group, ...] | None = None  # a TrainJob's


class Owner(Read, frozen=True):
    """A JobSet, Job, TrainJob or MPIJob: what runs a launch."""

    metadata: Metadata = Metadata()
    spec: OwnerSpec = OwnerSpec()
    status: OwnerStatus = OwnerStatus()

    def has(self, *types: str) -> Condition | None:
        """Return the first of these conditions that is true."""
        for condition in self.status.conditions or ():
            if condition.type in types and condition.status == "True":
                return condition
        return None


class Waiting(Read, frozen=True):
    reason: str | None = None
    message: str | None = None


class Terminated(Read, frozen=True):
    exit_code: int = 0
    signal: int | None = None
    reason: str | None = None
    message: str | None = None


class ContainerState(Read, frozen=True):
    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(Read, frozen=True):
    name: str = ""
    image: str = ""
    state: ContainerState = ContainerState()


class Resources(Read, frozen=True):
    limits: dict[str, str | int | float] | None = None


class Container(Read, frozen=True):
    name: str = ""
    image: str = ""
    resources: Resources = Resources()


class PodSpec(Read, frozen=True):
    node_name: str | None = None
    containers: tuple[Container, ...] = ()


class PodStatus(Read, frozen=True):
    phase: str = ""
    reason: str | None = None
    message: str | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(Read, frozen=True):
    """A pod of a launch."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def has(self, type: str, status: str) -> Condition | None:
        """Return this condition if it stands like this."""
        for condition in self.status.conditions or ():
            if (condition.type, condition.status) == (type, status):
                return condition
        return None

    @property
    def statuses(self) -> tuple[ContainerStatus, ...]:
        """Those of all its containers."""
        return (self.status.init_container_statuses or ()) + (self.status.container_statuses or ())


class Event(Read, frozen=True):
    """What a part of the cluster had to say of an object."""

    metadata: Metadata = Metadata()
    involved_object: Reference = Reference()
    reason: str | None = None
    message: str | None = None


class Workload(Read, frozen=True):
    """A launch in the cluster's own queue (Kueue)."""

    metadata: Metadata = Metadata()
    status: OwnerStatus = OwnerStatus()


class NodeSpec(Read, frozen=True):
    unschedulable: bool | None = None


class NodeStatus(Read, frozen=True):
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] | None = None


class Node(Read, frozen=True):
    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def open(self) -> bool:
        """Tell whether it is up and takes pods."""
        ready = any(one.type == "Ready" and one.status == "True" for one in self.status.conditions or ())
        return ready and not self.spec.unschedulable


class Plain(Read, frozen=True):
    """Any object, of which only who it is is read."""

    metadata: Metadata = Metadata()


class Versions(Read, frozen=True):
    version: str = ""
    group_version: str = ""


class ApiGroup(Read, frozen=True):
    name: str = ""
    versions: tuple[Versions, ...] = ()
    preferred_version: Versions = Versions()


class ApiGroups(Read, frozen=True):
    """What the API server serves beyond its core."""

    groups: tuple[ApiGroup, ...] = ()


class Owners(ListOf):
    items: tuple[Owner, ...] = ()


class Page(Read, frozen=True):
    """Where a list goes on that was not answered whole."""

    after: str = msgspec.field(name="continue", default="")


class Pods(ListOf):
    items: tuple[Pod, ...] = ()
    metadata: Page = Page()


class Events(ListOf):
    items: tuple[Event, ...] = ()


class Workloads(ListOf):
    items: tuple[Workload, ...] = ()


class Nodes(ListOf):
    items: tuple[Node, ...] = ()


class Plains(ListOf):
    items: tuple[Plain, ...] = ()


def quantity(given: Any) -> float:
    """Read a quantity as Kubernetes writes it: ``100m``, ``2``, ``1.5Gi``, ``1e3``."""
    text = str(given)
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * factor
    return float(text)


_BINARY = {f"{letter}i": float(1024**power) for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL = {letter: float(1000**power) for power, letter in enumerate("kMGTPE", start=1)}
_SUFFIXES: Mapping[str, float] = {**_BINARY, **_DECIMAL, "m": 1e-3, "u": 1e-6, "n": 1e-9}
