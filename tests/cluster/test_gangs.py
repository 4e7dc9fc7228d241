"""Gangs on a real cluster: their objects are accepted, their names resolve, their ends are reported."""

import dataclasses
import json
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.domain.launches import Placement
from runtimes.images import build, layers
from tests.cached import image, tool
from tests.cluster.client import Client
from tests.cluster.cluster import Cluster
from tests.cluster.operators import training_runtime
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi
from tests.unit.launch_samples import ALL, OPTIONS, SAMPLES, gang
from workers.executors.kubernetes import manifests
from workers.executors.kubernetes.options import CacheOptions, KubernetesOptions

ROOT = Path(__file__).parents[2]
#: Objects that the samples refer to, which must exist first.
#: Label with a pod's index in its Job.
INDEX = "batch.kubernetes.io/job-completion-index"

PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "low"},
    "value": -10,
}
#: A sum over all replicas, through the first replica, found by name; each replica also resolves all other names.
SUM = """
import json, os, socket, time
index, size = int(os.environ["NODE_RANK"]), int(os.environ["PET_NNODES"])
first, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
def resolved(name):
    for _ in range(600):
        try:
            return socket.gethostbyname(name)
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{name} is not known")
head, _, domain = first.partition(".")
peers = [head.rpartition("-")[0] + f"-{n}." + domain for n in range(size)]
addresses = [resolved(peer) for peer in peers]
assert len(set(addresses)) == size, addresses
assert socket.gethostname() == peers[index].partition(".")[0]
if index == 0:
    with socket.create_server(("", port)) as server:
        lines = [server.accept()[0] for _ in range(size - 1)]
        total = sum(int(line.recv(16)) for line in lines)
        for line in lines:
            line.sendall(str(total).encode())
    with open(os.environ["WINDTUNNEL_RESULT"], "w") as file:
        json.dump({"sum": total, "peers": len(set(addresses))}, file)
else:
    for _ in range(600):
        try:
            line = socket.create_connection((first, port), 3)
            break
        except OSError:
            time.sleep(0.1)
    line.sendall(str(index).encode())
    assert int(line.recv(16)) == size * (size - 1) // 2
"""
MPI = """
import json, os
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
if world.rank == 0:
    json.dump({"sum": total, "size": world.size}, open(os.environ["WINDTUNNEL_RESULT"], "w"))
"""
SLICED = """
import json, os
assert os.environ["TPU_WORKER_ID"] in "01" and len(os.environ["TPU_WORKER_HOSTNAMES"].split(",")) == 2
json.dump({"slices": os.environ["MEGASCALE_NUM_SLICES"]}, open(os.environ["WINDTUNNEL_RESULT"], "w"))
"""
#: Ends its container's first process, like the loss of a node.
LOST = """
import os, time
if os.environ["NODE_RANK"] == "1":
    os.kill(1, 15)
time.sleep(600)
"""
KILLED = """
import os, time
if os.environ["NODE_RANK"] == "1":
    os.kill(os.getpid(), 9)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def tag(own_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Import an image into the cluster; return its name."""
    made: dict[str, str] = {}

    def bring(name: str) -> str:
        if name == "mpi" and name not in made:
            made[name] = mpi(tmp_path_factory.mktemp("mpi"))
            own_cluster.import_image(tmp_path_factory.getbasetemp() / "mpi.tar")
        if name not in made:
            built = image(name)
            own_cluster.import_image(built.archive)
            made[name] = built.reference
        return made[name]

    yield bring


def mpi(folder: Path) -> str:
    """Write the Python image with MPICH added, as a site might have it; return its name."""
    base = image("python")
    config = layers.unpack(base.archive, folder)
    made = Path(tool("mpich")).parents[1]
    shutil.copytree(made / "lib", folder / "opt" / "mpi" / "lib", symlinks=True)
    (folder / "opt" / "mpi" / "bin").mkdir()
    for program in ("mpiexec.hydra", "hydra_pmi_proxy"):
        shutil.copy(made / "bin" / program, folder / "opt" / "mpi" / "bin")
    needed = subprocess.run(["ldd", made / "lib" / "libmpi.so.12"], capture_output=True, text=True, check=True).stdout
    for line in needed.splitlines():  # libraries of the machine that the Python image does not contain
        name, _, path = (line.split(" (")[0]).strip().partition(" => ")
        if name.startswith(("libdl", "libpthread", "librt", "libm.")):
            shutil.copy(path, folder / "opt" / "mpi" / "lib")
    more = {"PATH": "/opt/mpi/bin", "PYTHONPATH": "/opt/mpi/lib/python3.11/site-packages"}
    told = dict(one.split("=", 1) for one in config["Env"])
    told |= {name: f"{told[name]}:{value}" for name, value in more.items()} | {"LD_LIBRARY_PATH": "/opt/mpi/lib"}
    config["Env"] = [f"{name}={value}" for name, value in told.items()]
    layer = layers.write(folder, folder.with_suffix(".layer"), packed=False)
    manifest, configured = layers.manifest([layer], config, build.MACHINES[platform.machine()])
    reference = f"windtunnel-python:mpi-{layer.digest[:12]}"
    layers.archive(folder.parent / "mpi.tar", reference, [layer], manifest, configured)
    shutil.rmtree(folder)
    return reference


def options(namespace: str, server: str = "none:0", program: str = "") -> KubernetesOptions:
    """Return options with the imported images, even if the code has changed meanwhile."""
    images = dataclasses.replace(OPTIONS.images, runner=server, tag=program.rpartition(":")[2])
    return dataclasses.replace(
        OPTIONS, namespace=namespace, images=images, pull_policy="Never", runner_api_url="", scs=CacheOptions()
    )


@dataclasses.dataclass(frozen=True)
class End:
    """A JobSet's end, the objects that it left, and its pods' nodes."""

    condition: str
    results: list[dict[str, Any]]
    restarts: int
    seconds: float
    nodes: dict[str, list[str]]
    said: str


Play = Callable[..., End]


@pytest.fixture
def play(own_cluster: Cluster, namespace: str, tag: Callable[[str], str], tmp_path: Path) -> Iterator[Play]:
    """Run a simulation with a gang, whose runner API is a process of this machine."""
    server = tag("server")
    own_cluster.jobset()
    opened: list[RunnerApi] = []

    def played(size: int, communication: str, model: str, total: int = 2, **changes: Any) -> End:
        host = own_cluster.host_address
        runner_api = RunnerApi(tmp_path, total=total, play={"definition": {}}, model=model.encode(), host=host)
        opened.append(runner_api)
        placement = changes.pop("placement", Placement(cpu=0.01, memory=128 << 20))
        command = ("python", *(["-m", "mpi4py"] if communication == "mpi" else []), "model.py")
        made = gang(size, communication, placement, command=command, **changes)
        launch = dataclasses.replace(made, id=LAUNCH, url=runner_api.url, token=TOKEN)
        program = tag("mpi" if communication == "mpi" else "python")
        objects = manifests.launch_objects(launch, options(namespace, server, program), ALL)
        return followed(own_cluster, namespace, objects, runner_api)

    yield played
    for runner_api in opened:
        runner_api.close()


def followed(cluster: Cluster, namespace: str, objects: list[dict[str, Any]], runner_api: RunnerApi) -> End:
    """Create a gang, wait for its end and cancel it."""
    began = time.monotonic()
    cluster.apply(*reversed(objects))
    name = objects[0]["metadata"]["name"]
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/{name}"
    found: dict[str, Any] = {}
    seen: dict[tuple[str, str], str] = {}  # while it runs: a finished JobSet deletes its running pods at once

    def ended() -> bool:
        runner_api.settle()
        seen.update(places(cluster, namespace))
        found.update((cluster.get(path) or {}).get("status", {}))
        return any(one["type"] in {"Completed", "Failed"} and one["status"] == "True" for one in conditions(found))

    try:
        cluster.until(ended, f"{name} ends", patience=100)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told(cluster, namespace)}") from None
    seconds = time.monotonic() - began
    nodes: dict[str, list[str]] = {}
    for (job, _), node in seen.items():
        nodes.setdefault(job, []).append(node)
    said = told(cluster, namespace)
    cluster.kubectl("delete", "-n", namespace, "jobset", name)
    [condition] = [one["type"] for one in conditions(found) if one["type"] in {"Completed", "Failed"}]
    print(f"{name}: {condition} after {seconds:.1f} s")
    return End(
        condition=condition,
        results=runner_api.results(),
        restarts=int(found.get("restarts", 0)),
        seconds=seconds,
        nodes=nodes,
        said=said,
    )


def places(cluster: Client, namespace: str) -> dict[tuple[str, str], str]:
    """Return the nodes of pods, by Job and index."""
    return {
        (one["metadata"]["labels"]["jobset.sigs.k8s.io/job-key"], one["metadata"]["labels"][INDEX]): node
        for one in cluster.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        if (node := one["spec"].get("nodeName"))
    }


def told(cluster: Client, namespace: str) -> str:
    """Return the output of a gang's programs, for messages of failed tests."""
    pods = ("-l", "windtunnel/launch", "--all-containers", "--prefix", "--tail=-1")
    try:
        return cluster.kubectl("logs", "-n", namespace, *pods)
    except RuntimeError as error:  # a pod has just been deleted
        return str(error)


def conditions(status: dict[str, Any]) -> list[dict[str, Any]]:
    return list(status.get("conditions", []))


@pytest.fixture
def served(cluster: Client) -> Iterator[None]:
    """Objects that the samples refer to, while the test runs."""
    cluster.jobset()
    cluster.trainer()
    cluster.mpi_operator()
    cluster.apply(PRIORITY, training_runtime("torch-distributed"))
    yield
    cluster.kubectl("delete", "priorityclass", "low")
    cluster.kubectl("delete", "clustertrainingruntime", "torch-distributed")


@pytest.mark.usefixtures("served")
def test_a_real_api_server_accepts_every_object_unchanged(cluster: Client, namespace: str) -> None:
    for name, (launch, serves) in SAMPLES.items():
        objects = manifests.launch_objects(launch, options(namespace), serves)
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        said = cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", given=document)
        assert said.count("created (server dry run)") == len(objects), (name, said)


def test_a_gang_finds_its_replicas_by_name_and_ends_with_its_leader(play: Play) -> None:
    end = play(3, "torch", SUM)
    assert end.condition == "Completed", end
    assert [one["metrics"] for one in end.results] == [{"sum": 3, "peers": 3}] * 2


def test_ranks_of_mpi_connect_without_ssh(play: Play) -> None:
    end = play(2, "mpi", MPI, slots=2)
    assert end.condition == "Completed", end
    assert [one.get("metrics") for one in end.results] == [{"sum": 6, "size": 4}] * 2, end.said


def test_a_killed_rank_fails_its_task_and_not_the_gang(play: Play) -> None:
    end = play(3, "torch", KILLED)
    assert end.condition == "Completed", end
    assert [one["status"] for one in end.results] == ["crashed", "crashed"]


def test_a_gang_that_loses_a_pod_restarts_as_often_as_configured(play: Play) -> None:
    end = play(2, "torch", LOST, total=1, restarts=1)
    assert (end.condition, end.restarts) == ("Failed", 1), end


def test_each_slice_of_a_gang_has_an_exclusive_domain(own_cluster: Cluster, play: Play) -> None:
    own_cluster.grow(3)
    placement = Placement(cpu=0.01, memory=128 << 20, exclusive="topology.kubernetes.io/zone")
    end = play(2, "tpu", SLICED, total=1, slices=2, placement=placement)
    assert end.condition == "Completed", end
    assert end.results[0]["metrics"] == {"slices": "2"}
    slices = [nodes for nodes in end.nodes.values() if len(nodes) == 2]
    assert len(slices) == 2 and all(len(set(nodes)) == 1 for nodes in slices), end.nodes
    [led] = [nodes for nodes in end.nodes.values() if len(nodes) == 1]
    assert {nodes[0] for nodes in (*slices, led)} == {"node-0", "node-1", "node-2"}, "who leads is let into neither"
