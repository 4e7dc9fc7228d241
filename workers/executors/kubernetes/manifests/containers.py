"""Container templates: user, command and volume mounts of each container of a pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

#: The group that all containers of a pod share, for the sockets between them.
GROUP = 10000
#: Grace period in seconds; a runner needs two of them to release its leases.
GRACE = 30
#: File of the cache service's token, beside the launch's token.
SCS_TOKEN = "scs"
RUN = "/run/windtunnel"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """A volume that containers share."""

    volume: str
    path: str
    read_only: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerTemplate:
    """Template of a container."""

    name: str
    user: int
    command: tuple[str, ...]
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


_SOCKETS = Mount(volume="sockets", path=f"{RUN}/sockets")
_FILES = Mount(volume="files", path=f"{RUN}/files")

_LAUNCH = ("--launch", f"{RUN}/token/launch.json", "--sockets", _SOCKETS.path)

#: Only the runner holds the token, and only the runner may write into the shared volumes.
RUNNER = ContainerTemplate(
    name="runner",
    user=10001,
    command=("python", "-m", "workers.standalone_runner", *_LAUNCH),
    mounts=(
        Mount(volume="sockets", path=_SOCKETS.path, read_only=False),
        Mount(volume="files", path=_FILES.path, read_only=False),
        Mount(volume="token", path=f"{RUN}/token"),
    ),
)
EVALUATOR = ContainerTemplate(
    name="evaluator",
    user=10002,
    command=("python", "-m", "runtimes.harness.runner.container_init", "evaluator"),
    mounts=(_SOCKETS, _FILES),
)
MODEL_SERVER = ContainerTemplate(
    name="model-server",
    user=10003,
    command=("python", "-m", "runtimes.harness.runner.container_init", "model_server"),
    mounts=(_SOCKETS, _FILES),
)
#: What a pod for a trusted model has besides: a volume in which model servers leave the packages of their format.
TRUSTED_MOUNT = Mount(volume="trusted", path=f"{RUN}/trusted")


def trusted_template(template: ContainerTemplate) -> ContainerTemplate:
    """Return the container of evaluators or of model servers in a pod for a trusted model."""
    mount = replace(TRUSTED_MOUNT, read_only=template is EVALUATOR)
    command = (*template.command, "--trusted", mount.path)
    return replace(template, command=command, mounts=(*template.mounts, mount))


#: The program of a gang with an image of its own, which holds no platform secrets.
PROGRAM = ContainerTemplate(name="main", user=10003, command=())
#: Container of an MPIJob, with the user of the operator's own images.
MPI = ContainerTemplate(name="main", user=1000, command=())
#: Where the ranks of a pod share memory, more than a container has without it.
SHARED_MEMORY = Mount(volume="shared-memory", path="/dev/shm", read_only=False)
#: A replica of a gang, which gets the files of its program from the gang's runner.
REPLICA = ContainerTemplate(
    name="main",
    user=10003,
    command=("python", "-m", "runtimes.harness.gang.replica", "--files", _FILES.path),
    mounts=(replace(_FILES, read_only=False), SHARED_MEMORY),
)
GANG_RUNNER = ContainerTemplate(
    name="runner",
    user=10001,
    command=("python", "-m", "workers.gang_runner", "--launch", f"{RUN}/token/launch.json"),
    mounts=(replace(_FILES, read_only=False), Mount(volume="token", path=f"{RUN}/token")),
)
