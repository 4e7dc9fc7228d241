"""The containers of a pod: who each runs as, what it runs, and what it sees of the others."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

#: The group that all containers of a pod share, for the sockets between them.
GROUP = 10000
#: Seconds from the notice to the end; a runner needs two of them to hand back what it has not played.
GRACE = 30
#: The file of the cache's token, beside the launch's own.
SCS_TOKEN = "scs"
RUN = "/run/windtunnel"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """A volume that containers share."""

    volume: str
    path: str
    read_only: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One container."""

    name: str
    user: int
    command: tuple[str, ...]
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


_POSTS = Mount(volume="posts", path=f"{RUN}/posts")
_FILES = Mount(volume="files", path=f"{RUN}/files")

_LAUNCH = ("--launch", f"{RUN}/token/launch.json", "--posts", _POSTS.path)

#: The only one that holds the token, and the only one that writes into what is shared.
RUNNER = Part(
    name="runner",
    user=10001,
    command=("python", "-m", "workers.standalone_runner", *_LAUNCH),
    mounts=(
        Mount(volume="posts", path=_POSTS.path, read_only=False),
        Mount(volume="files", path=_FILES.path, read_only=False),
        Mount(volume="token", path=f"{RUN}/token"),
    ),
)
EVALUATOR = Part(
    name="evaluator",
    user=10002,
    command=("python", "-m", "runtimes.harness.runner.container_init", "evaluator"),
    mounts=(_POSTS, _FILES),
)
MODEL_SERVER = Part(
    name="model-server",
    user=10003,
    command=("python", "-m", "runtimes.harness.runner.container_init", "model_server"),
    mounts=(_POSTS, _FILES),
)
#: A gang's program: the user's own, so it holds nothing of ours.
PROGRAM = Part(name="main", user=10003, command=())
#: What the MPI operator starts, by the user and the home that its own images have.
MPI = Part(name="main", user=1000, command=())
#: What leads a gang, beside its runner: it reads the model, to hand it on.
LEADER = Part(name="main", user=10003, command=(), mounts=(_POSTS, _FILES))
GANG_RUNNER = replace(
    RUNNER,
    command=("python", "-m", "workers.gang_runner", *_LAUNCH),
)
