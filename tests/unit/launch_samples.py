"""Sample launches for tests of manifests, by name."""

from typing import Any

from core.domain.scheduling.launches import Gang, Launch, Placement
from workers.executors.kubernetes.manifests import ServedApis
from workers.executors.kubernetes.options import CacheOptions, Images, KubernetesOptions

ALL = ServedApis(jobset=True, trainer=True, mpijob=True, kueue=True, dra="v1")
BARE = ServedApis(jobset=False)
OPTIONS = KubernetesOptions(
    installation="acme",
    runner_api_url="http://windtunnel-runner-api.windtunnel.svc:8001",
    images=Images(runner="windtunnel-server:abc", tag="abc"),
    scs=CacheOptions(nodes="http://10.1.2.3:8002"),
)


def launch(**changes: Any) -> Launch:
    """Return a launch of two workers with changes."""
    return Launch(
        **{
            "id": "s1x1x1",
            "simulation_id": "s1",
            "attempt": 1,
            "url": "http://192.0.2.2:8001",
            "workers": 2,
            "runtime": "onnx",
            "format": "onnx",
            "dataset": "car_street",
            "version": "1",
            "model_digest": "sha256:" + "0" * 64,
            "model_key": "models/0",
            "token": "a token of the launch",
            "project": "street",
            **changes,
        }
    )


def gang(size: int = 2, communication: str = "none", placement: Placement | None = None, **changes: Any) -> Launch:
    """Return a launch of a gang that runs a Python program."""
    options = Gang(size=size, communication=communication, **{"command": ("python", "program.py"), **changes})
    return launch(gang=options, placement=placement or Placement(), runtime="python", format="python")


EVERYTHING = Placement(
    cpu=4,
    memory=8 << 30,
    resources={"nvidia.com/gpu": "1", "rdma/hca": "1"},
    networks=("fast",),
    claims={"accelerator": "one-gpu"},
    annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    node_selector={"pool": "gpu"},
    exclusive="topology.kubernetes.io/zone",
    queue="simulations",
    priority="low",
)

#: Name of the golden file -> launch, and the APIs that the cluster serves.
SAMPLES: dict[str, tuple[Launch, ServedApis]] = {
    "independent": (launch(), ALL),
    "independent-without-jobset": (launch(timeout=90.5), BARE),
    "independent-everything": (launch(placement=EVERYTHING, workers=9), ALL),
    "independent-trusted": (launch(trusted=True), ALL),
    "gang-none": (gang(3), ALL),
    "gang-mpi": (gang(2, "mpi", slots=2), ALL),
    "gang-mpi-own-image": (gang(2, "mpi", image="registry.example/mpich:5"), ALL),
    "gang-torch": (gang(2, "torch", restarts=3), ALL),
    "gang-tensorflow": (gang(2, "tensorflow"), ALL),
    "gang-jax": (gang(2, "jax"), ALL),
    "gang-tpu-slices": (gang(4, "tpu", slices=3, placement=Placement(resources={"google.com/tpu": "4"})), ALL),
    "gang-everything": (gang(2, "torch", placement=EVERYTHING), ALL),
    "gang-trainer": (gang(3, "torch", operator="trainer", runtime_ref="torch-distributed", slots=2), ALL),
    "gang-trainer-everything": (
        gang(3, "torch", operator="trainer", runtime_ref="torch-distributed", image="i:1", placement=EVERYTHING),
        ALL,
    ),
    "gang-mpi-operator": (gang(3, "mpi", operator="mpi-operator", image="registry.example/openmpi:5"), ALL),
    "gang-mpi-operator-everything": (
        gang(2, "mpi", EVERYTHING, operator="mpi-operator", image="i:1", implementation="mpich", slots=2, restarts=3),
        ALL,
    ),
}
