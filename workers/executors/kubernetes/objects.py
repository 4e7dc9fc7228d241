"""Kubernetes object types: the fields that the executor reads, and where each kind is served."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from kube.client import ListResponse

#: Labels and annotations of the platform.
INSTALLATION, LAUNCH = "windtunnel/installation", "windtunnel/launch"
GANG = "windtunnel/gang"
#: Label of warm launches (digest of their target), and annotation with the hash of their token.
WARM, TOKEN_HASH = "windtunnel/warm", "windtunnel/token-hash"
SIMULATION, ATTEMPT = "windtunnel/simulation", "windtunnel/attempt"
INDEX = "batch.kubernetes.io/job-completion-index"
#: Kueue's queue label; Kueue adds it itself where a namespace has a default queue.
QUEUE = "kueue.x-k8s.io/queue-name"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """Name, API version and plural of a resource kind."""

    name: str
    api: str
    plural: str


JOBSET = ResourceKind("JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets")
JOB = ResourceKind("Job", "batch/v1", "jobs")
TRAINJOB = ResourceKind("TrainJob", "trainer.kubeflow.org/v1alpha1", "trainjobs")
MPIJOB = ResourceKind("MPIJob", "kubeflow.org/v2beta1", "mpijobs")
POLICY = ResourceKind("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies")
SECRET = ResourceKind("Secret", "v1", "secrets")
NAMESPACE = ResourceKind("Namespace", "v1", "namespaces")
POD = ResourceKind("Pod", "v1", "pods")
EVENT = ResourceKind("Event", "v1", "events")

#: Kinds that run a launch, most likely first.
OWNERS = (JOBSET, JOB, TRAINJOB, MPIJOB)
#: Other kinds of a launch's objects.
AUXILIARY_KINDS = (POLICY, SECRET)
KINDS: Mapping[str, ResourceKind] = {kind.name: kind for kind in (*OWNERS, *AUXILIARY_KINDS)}


class ApiObject(msgspec.Struct, rename="camel", frozen=True):
    """Base of object types: fields in camel case; unknown fields are skipped."""


class ObjectReference(ApiObject, frozen=True):
    """Reference to an owner or to an event's object."""

    kind: str = ""
    name: str = ""


class Metadata(ApiObject, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: tuple[ObjectReference, ...] = ()

    @property
    def launch(self) -> str:
        """The launch id, or an empty string."""
        return self.labels.get(LAUNCH, "")


class Condition(ApiObject, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None


class JobGroup(ApiObject, frozen=True):
    """Jobs of one role in a JobSet or a TrainJob."""

    replicas: int = 1
    ready: int = 0
    succeeded: int = 0


class RunPolicy(ApiObject, frozen=True):
    suspend: bool | None = None


class OwnerSpec(ApiObject, frozen=True):
    suspend: bool | None = None
    run_policy: RunPolicy = RunPolicy()  # an MPIJob's
    parallelism: int | None = None  # a Job's
    replicated_jobs: tuple[JobGroup, ...] = ()  # a JobSet's
    mpi_replica_specs: dict[str, JobGroup] = {}  # an MPIJob's, by role


class OwnerStatus(ApiObject, frozen=True):
    conditions: tuple[Condition, ...] | None = None
    ready: int | None = None  # a Job's pods
    succeeded: int | None = None
    replicated_jobs_status: tuple[JobGroup, ...] | None = None  # a JobSet's jobs
    jobs_status: tuple[JobGroup, ...] | None = None  # a TrainJob's


class Owner(ApiObject, frozen=True):
    """A JobSet, Job, TrainJob or MPIJob: what runs a launch."""

    metadata: Metadata = Metadata()
    spec: OwnerSpec = OwnerSpec()
    status: OwnerStatus = OwnerStatus()

    def has(self, *types: str) -> Condition | None:
        """Return the first of these conditions with status True."""
        conditions = self.status.conditions or ()
        return next((item for item in conditions if item.type in types and item.status == "True"), None)


class ContainerWaiting(ApiObject, frozen=True):
    reason: str | None = None
    message: str | None = None


class Terminated(ApiObject, frozen=True):
    exit_code: int = 0
    signal: int | None = None
    reason: str | None = None
    message: str | None = None


class ContainerState(ApiObject, frozen=True):
    waiting: ContainerWaiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(ApiObject, frozen=True):
    name: str = ""
    image: str = ""
    state: ContainerState = ContainerState()


class Resources(ApiObject, frozen=True):
    limits: dict[str, str | int | float] | None = None


class Container(ApiObject, frozen=True):
    name: str = ""
    resources: Resources = Resources()


class PodSpec(ApiObject, frozen=True):
    node_name: str | None = None
    containers: tuple[Container, ...] = ()


class PodStatus(ApiObject, frozen=True):
    phase: str = ""
    reason: str | None = None
    message: str | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(ApiObject, frozen=True):
    """A pod of a launch."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def has(self, type: str, status: str) -> Condition | None:
        """Return the condition with this type and status, or None."""
        conditions = self.status.conditions or ()
        return next((item for item in conditions if (item.type, item.status) == (type, status)), None)

    @property
    def statuses(self) -> tuple[ContainerStatus, ...]:
        """Statuses of all containers, init containers first."""
        return (self.status.init_container_statuses or ()) + (self.status.container_statuses or ())


class ClusterEvent(ApiObject, frozen=True):
    """An event about an object."""

    metadata: Metadata = Metadata()
    involved_object: ObjectReference = ObjectReference()
    reason: str | None = None
    message: str | None = None


class Workload(ApiObject, frozen=True):
    """A launch in a Kueue queue."""

    metadata: Metadata = Metadata()
    status: OwnerStatus = OwnerStatus()


class MetadataOnly(ApiObject, frozen=True):
    """Any object; only its metadata is read."""

    metadata: Metadata = Metadata()


class ServedVersions(ApiObject, frozen=True):
    version: str = ""
    group_version: str = ""


class ApiGroup(ApiObject, frozen=True):
    name: str = ""
    versions: tuple[ServedVersions, ...] = ()
    preferred_version: ServedVersions = ServedVersions()


class ApiGroups(ApiObject, frozen=True):
    """API groups beyond the core API."""

    groups: tuple[ApiGroup, ...] = ()


class OwnerList(ListResponse):
    items: tuple[Owner, ...] = ()


class ListPage(ApiObject, frozen=True):
    """Continue token of a paginated list."""

    after: str = msgspec.field(name="continue", default="")


class PodList(ListResponse):
    items: tuple[Pod, ...] = ()
    metadata: ListPage = ListPage()


class ClusterEventList(ListResponse):
    items: tuple[ClusterEvent, ...] = ()


class WorkloadList(ListResponse):
    items: tuple[Workload, ...] = ()


class MetadataOnlyList(ListResponse):
    items: tuple[MetadataOnly, ...] = ()
