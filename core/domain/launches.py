"""What an executor is handed, and what it tells in return."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Gang:
    """Replicas that start together or not at all, for a program that is one over all of them.

    ``slots``: processes a replica. ``slices``: groups of ``size`` replicas each, as accelerators are sliced.
    ``operator``: empty, ``trainer`` or ``mpi-operator``, where a runtime asks for one that is installed.
    ``implementation``: whose MPI the image has that the MPI operator is to start: ``openmpi``, ``mpich`` or ``intel``.
    """

    size: int
    communication: str = "none"  # none | mpi | torch | tensorflow | jax | tpu
    slots: int = 1
    slices: int = 1
    command: tuple[str, ...] = ()
    restarts: int = 0
    operator: str = ""
    image: str = ""
    implementation: str = "openmpi"
    runtime_ref: str = ""

    @property
    def attended(self) -> bool:
        """Whether a runner goes with it: an image of its own, or an operator's, runs its program once by itself."""
        return not self.image and not self.operator


def replicas(gang: Mapping[str, Any]) -> int:
    """Return how many replicas a gang has in all, by its JSON form."""
    return int(gang["size"]) * int(gang.get("slices", 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """What a launch asks of the place it runs in; a backend that knows nothing of a value leaves it alone.

    ``cpu`` in cores and ``memory`` in bytes are those of one pair of evaluator and host, or of one replica of a gang.
    """

    executor: str = ""  # a context's name; empty: any
    cpu: float = 1.0
    memory: int = 2 << 30
    resources: Mapping[str, str] = field(default_factory=dict)  # extended ones: {"nvidia.com/gpu": "1"}
    networks: tuple[str, ...] = ()  # secondary ones, by name
    claims: Mapping[str, str] = field(default_factory=dict)  # of devices: name -> template
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    exclusive: str = ""  # a key of the topology: no two launches in one of its domains
    queue: str = ""  # of the cluster's own admission, where a site runs one
    priority: str = ""  # a class of the cluster's


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """The runners of one attempt at a simulation. ``id`` is the only handle; ``token`` never reaches a log."""

    id: str
    simulation_id: str
    attempt: int
    url: str  # where the runner API answers
    workers: int
    runtime: str
    format: str
    dataset: str  # the built-in one whose files an evaluator sees
    version: str
    model_digest: str
    model_key: str  # in the object store
    token: str = field(repr=False)
    play: str = ""  # a registered dataset's folder on the node, where its own scenarios lie beside those files
    project: str = "default"
    model_size: int = 0
    # What an evaluator sees, packed: for a backend whose runners share no folder with us.
    play_key: str = ""
    play_digest: str = ""
    play_size: int = 0
    gang: Gang | None = None
    placement: Placement = field(default_factory=Placement)
    timeout: float | None = None  # seconds


class Phase(StrEnum):
    """How far an executor has brought a launch."""

    SUSPENDED = "suspended"  # the cluster's own queue holds it
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """One sentence for people on how a launch fares, and what to do; ``key`` keeps it from being told twice."""

    key: str
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchStatus:
    """What an executor sees of a launch; ``exit`` and ``reason`` only once it has ended.

    ``hopeless``: trying again would end the same way, until somebody does something about it.
    """

    id: str
    phase: Phase
    exit: int | None = None
    reason: str | None = None
    notes: tuple[Note, ...] = ()
    hopeless: bool = False
