"""Launches: what an executor receives to run, and the status it observes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

#: When the program of a gang is started: for each task, or once for the launch.
STARTS = ("task", "launch")
#: The communication model of packaged simulators, whose packages are the root of their sandbox.
PACKAGED = "packaged"


@dataclass(frozen=True, kw_only=True, slots=True)
class Gang:
    """Replicas that start together or not at all, for one program that spans them.

    ``slots``: processes per replica. ``slices``: groups of ``size`` replicas each, such as TPU slices.
    ``operator``: empty (JobSet), ``trainer`` or ``mpi-operator``, which must be installed in the cluster.
    ``implementation``: the MPI in the image that the MPI operator starts: ``openmpi``, ``mpich`` or ``intel``.
    """

    size: int
    communication: str = "none"  # a module of scheduling/communications
    start: str = "task"  # its program is started for each task, or once for the launch
    slots: int = 1
    slices: int = 1
    build: tuple[str, ...] = ()  # compiles the program, in the folder of the model, once
    command: tuple[str, ...] = ()
    restarts: int = 0
    operator: str = ""
    image: str = ""
    implementation: str = "openmpi"
    runtime_ref: str = ""

    @property
    def attended(self) -> bool:
        """Whether a runner leads it. Without one (own image, or an operator), its program runs once."""
        return not self.image and not self.operator

    @property
    def is_packaged(self) -> bool:
        """Whether its program is a packaged simulator, whose sandbox needs a root of its own."""
        return self.communication == PACKAGED

    @property
    def nodes(self) -> int:
        """Machines that it has where each replica has one: the launcher of a packaged simulator starts ranks on one."""
        return 1 if self.is_packaged else self.size * self.slices


class _Dimensions(msgspec.Struct):
    """The members of a gang that its number of replicas follows from."""

    size: int
    slices: int = 1


def replicas(gang: Mapping[str, object]) -> int:
    """Return the total number of replicas of a gang in JSON form."""
    dimensions = msgspec.convert(gang, _Dimensions, strict=False)
    return dimensions.size * dimensions.slices


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Resources and constraints that a launch requests; a backend ignores the values that it does not have.

    ``cpu`` in cores and ``memory`` in bytes, for one worker (evaluator and model server) or one replica of a gang.
    """

    executor: str = ""  # name of an executor; empty: any
    cpu: float = 1.0
    memory: int = 2 << 30
    resources: Mapping[str, str] = field(default_factory=dict)  # extended resources: {"nvidia.com/gpu": "1"}
    networks: tuple[str, ...] = ()  # names of secondary networks
    claims: Mapping[str, str] = field(default_factory=dict)  # device claims: name -> template
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    exclusive: str = ""  # topology key: at most one launch per domain
    queue: str = ""  # queue of the cluster's own admission (Kueue)
    priority: str = ""  # the cluster's priority class


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One attempt to run a simulation. ``id`` is the only handle; ``token`` is never logged."""

    id: str
    simulation_id: str
    attempt: int
    url: str  # of the runner API
    workers: int
    runtime: str
    format: str
    dataset: str  # the built-in dataset whose files an evaluator reads
    version: str
    model_digest: str
    model_key: str  # in the object store
    token: str = field(repr=False)
    environment: str = ""  # the model's own packages on the node (a digest); empty: those of its format
    play: str = ""  # a registered dataset's folder on the node: its scenarios beside the built-in files
    trusted: bool = False  # its evaluators load the model themselves
    project: str = "default"
    model_size: int = 0
    # The evaluator's bundle, for a backend whose runners share no folder with the platform.
    play_key: str = ""
    play_digest: str = ""
    play_size: int = 0
    gang: Gang | None = None
    placement: Placement = field(default_factory=Placement)
    timeout: float | None = None  # seconds


class Phase(StrEnum):
    """Phase of a launch on its executor."""

    SUSPENDED = "suspended"  # in the cluster's own queue
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """A sentence for users about a launch, with the next step; a note with the same ``key`` is recorded once."""

    key: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchStatus:
    """Status of a launch as its executor observes it; ``exit`` and ``reason`` only once it has ended.

    ``hopeless``: a retry would fail in the same way until a person intervenes.
    """

    id: str
    phase: Phase
    exit: int | None = None
    reason: str | None = None
    notes: tuple[Note, ...] = ()
    hopeless: bool = False


@dataclass(frozen=True, slots=True)
class WarmLaunch:
    """A warm launch (created before its simulation is known): its id and its token's hash."""

    id: str
    token_hash: str
