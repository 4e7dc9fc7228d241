"""Gangs on a real cluster: their objects are accepted, their names resolve, their ends are reported."""

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.domain.scheduling.launches import Placement
from tests.cached import image
from tests.cluster.client import Client
from tests.cluster.cluster import Cluster
from tests.cluster.operators import training_runtime
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi
from tests.unit.launch_samples import ALL, OPTIONS, SAMPLES, gang
from workers.executors.kubernetes import manifests
from workers.executors.kubernetes.options import CacheOptions, KubernetesOptions

#: Bytes of a replica: of the processes that start its ranks too.
MEMORY = 512 << 20
#: Label with a pod's index in its Job.
INDEX = "batch.kubernetes.io/job-completion-index"
#: A class that the samples refer to, which must exist first.
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
    raise SystemExit(f"{name} cannot be resolved")
head, _, domain = first.partition(".")
peers = [head.rpartition("-")[0] + f"-{n}." + domain for n in range(size)]
addresses = [resolved(peer) for peer in peers]
assert len(set(addresses)) == size, addresses
assert socket.gethostname() == peers[index].partition(".")[0]
if index == 0:
    with socket.create_server(("", port)) as server:
        connections = [server.accept()[0] for _ in range(size - 1)]
        total = sum(int(connection.recv(16)) for connection in connections)
        for connection in connections:
            connection.sendall(str(total).encode())
    with open(os.environ["WINDTUNNEL_RESULT"], "w") as file:
        json.dump({"sum": total, "peers": len(set(addresses))}, file)
else:
    for _ in range(600):
        try:
            connection = socket.create_connection((first, port), 3)
            break
        except OSError:
            time.sleep(0.1)
    connection.sendall(str(index).encode())
    assert int(connection.recv(16)) == size * (size - 1) // 2
"""
MPI = """
import json, os
from mpi4py import MPI
communicator = MPI.COMM_WORLD
total = communicator.allreduce(communicator.rank)
if communicator.rank == 0:
    json.dump({"sum": total, "size": communicator.size}, open(os.environ["WINDTUNNEL_RESULT"], "w"))
"""
TPU_SLICES = """
import json, os
assert os.environ["TPU_WORKER_ID"] in "01" and len(os.environ["TPU_WORKER_HOSTNAMES"].split(",")) == 2
json.dump({"slices": os.environ["MEGASCALE_NUM_SLICES"]}, open(os.environ["WINDTUNNEL_RESULT"], "w"))
"""
#: Each rank leaves a checkpoint and waits, until its gang goes on from there.
HALVES = """
import json, os, pathlib, time
rank = os.environ["WINDTUNNEL_RANK"]
restored = pathlib.Path(os.environ.get("WINDTUNNEL_RESTORE", "none"))
if not restored.exists():
    folder = pathlib.Path(os.environ["WINDTUNNEL_CHECKPOINT"])
    (folder / ".half").write_text(rank)
    (folder / ".half").rename(folder / "half")
    while (folder / "half").exists():
        time.sleep(0.01)
    print("waits to be lost", flush=True)
    time.sleep(600)
print(json.dumps({"halves": sum(int((restored / str(n) / "half").read_text()) for n in range(2))}))
"""
KILL_RANK = """
import os, time
if os.environ["NODE_RANK"] == "1":
    os.kill(os.getpid(), 9)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def import_image(own_cluster: Cluster) -> Iterator[Callable[[str], str]]:
    """Import images into the cluster, each once; return their names."""
    references: dict[str, str] = {}

    def import_once(name: str) -> str:
        if name not in references:
            built = image(name)
            own_cluster.import_image(built.archive)
            references[name] = built.reference
        return references[name]

    yield import_once


def options(namespace: str, server: str = "none:0", program: str = "") -> KubernetesOptions:
    """Return options with the imported images, even if the code has changed meanwhile."""
    images = dataclasses.replace(OPTIONS.images, runner=server, tag=program.rpartition(":")[2])
    return dataclasses.replace(
        OPTIONS, namespace=namespace, images=images, pull_policy="Never", runner_api_url="", scs=CacheOptions()
    )


@dataclasses.dataclass(frozen=True)
class GangEnd:
    """The end of a gang: its JobSet's condition, the results, restarts, duration, its pods' nodes and logs."""

    condition: str
    results: list[dict[str, Any]]
    restarts: int
    seconds: float
    nodes: dict[str, list[str]]
    logs: str


RunGang = Callable[..., GangEnd]


@pytest.fixture
def run_gang(
    own_cluster: Cluster, namespace: str, import_image: Callable[[str], str], tmp_path: Path
) -> Iterator[RunGang]:
    """Run a simulation with a gang, whose runner API is a process of this machine."""
    server = import_image("server")
    own_cluster.jobset()
    runner_apis: list[RunnerApi] = []

    def run(size: int, communication: str, model: str, total: int = 2, lost: str = "", **changes: Any) -> GangEnd:
        host = own_cluster.host_address
        runner_api = RunnerApi(tmp_path, total=total, play={"definition": {}}, model=model.encode(), host=host)
        runner_apis.append(runner_api)
        placement = changes.pop("placement", Placement(cpu=0.01, memory=MEMORY))
        command = ("python", *(["-m", "mpi4py"] if communication == "mpi" else []), "model.py")
        gang_launch = gang(size, communication, placement, command=command, **changes)
        launch = dataclasses.replace(gang_launch, id=LAUNCH, url=runner_api.url, token=TOKEN)
        objects = manifests.launch_objects(launch, options(namespace, server, import_image("python")), ALL)
        return run_to_end(own_cluster, namespace, objects, runner_api, lost)

    yield run
    for runner_api in runner_apis:
        runner_api.close()


def run_to_end(
    cluster: Cluster, namespace: str, objects: list[dict[str, Any]], runner_api: RunnerApi, lost: str = ""
) -> GangEnd:
    """Create the objects of a gang, wait for its end and delete them.

    ``lost``: the gang loses a pod once it has printed this.
    """
    losses = [lost] if lost else []
    began = time.monotonic()
    cluster.apply(*reversed(objects))
    name = objects[0]["metadata"]["name"]
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/{name}"
    status: dict[str, Any] = {}
    # collected while the gang runs: a finished JobSet deletes its running pods at once
    nodes_by_pod: dict[tuple[str, str], str] = {}

    def has_ended() -> bool:
        runner_api.settle()
        if losses and losses[0] in runner_api.logs():
            losses.clear()
            pods = f"{INDEX}=1,jobset.sigs.k8s.io/replicatedjob-name=w"
            cluster.kubectl("delete", "-n", namespace, "pod", "-l", pods, "--force", "--grace-period=0")
        nodes_by_pod.update(nodes_of_pods(cluster, namespace))
        status.update((cluster.get(path) or {}).get("status", {}))
        return any(
            condition["type"] in {"Completed", "Failed"} and condition["status"] == "True"
            for condition in conditions(status)
        )

    try:
        cluster.until(has_ended, f"{name} ends", timeout=100)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{logs_of(cluster, namespace)}") from None
    seconds = time.monotonic() - began
    nodes: dict[str, list[str]] = {}
    for (job, _), node in nodes_by_pod.items():
        nodes.setdefault(job, []).append(node)
    logs = logs_of(cluster, namespace)
    cluster.kubectl("delete", "-n", namespace, "jobset", name)
    [condition] = [item["type"] for item in conditions(status) if item["type"] in {"Completed", "Failed"}]
    print(f"{name}: {condition} after {seconds:.1f} s")
    return GangEnd(
        condition=condition,
        results=runner_api.results(),
        restarts=int(status.get("restarts", 0)),
        seconds=seconds,
        nodes=nodes,
        logs=logs,
    )


def nodes_of_pods(cluster: Client, namespace: str) -> dict[tuple[str, str], str]:
    """Return the nodes of pods, by Job and index."""
    return {
        (pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-key"], pod["metadata"]["labels"][INDEX]): node
        for pod in cluster.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        if (node := pod["spec"].get("nodeName"))
    }


def logs_of(cluster: Client, namespace: str) -> str:
    """Return the output of a gang's programs, for messages of failed tests."""
    pods = ("-l", "windtunnel/launch", "--all-containers", "--prefix", "--tail=-1")
    try:
        return cluster.kubectl("logs", "-n", namespace, *pods)
    except RuntimeError as error:  # a pod has just been deleted
        return str(error)


def conditions(status: dict[str, Any]) -> list[dict[str, Any]]:
    return list(status.get("conditions", []))


@pytest.fixture
def sample_dependencies(cluster: Client) -> Iterator[None]:
    """Objects that the samples refer to, while the test runs."""
    cluster.jobset()
    cluster.trainer()
    cluster.mpi_operator()
    cluster.apply(PRIORITY, training_runtime("torch-distributed"))
    yield
    cluster.kubectl("delete", "priorityclass", "low")
    cluster.kubectl("delete", "clustertrainingruntime", "torch-distributed")


@pytest.mark.usefixtures("sample_dependencies")
def test_a_real_api_server_accepts_every_object_unchanged(cluster: Client, namespace: str) -> None:
    for name, (launch, served_apis) in SAMPLES.items():
        objects = manifests.launch_objects(launch, options(namespace), served_apis)
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        output = cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=document)
        assert output.count("created (server dry run)") == len(objects), (name, output)


def test_a_gang_finds_its_replicas_by_name_and_ends_with_its_leader(run_gang: RunGang) -> None:
    end = run_gang(3, "torch", SUM)
    assert end.condition == "Completed", end
    assert [result["metrics"] for result in end.results] == [{"sum": 3, "peers": 3}] * 2


def test_ranks_of_mpi_connect_without_ssh(run_gang: RunGang) -> None:
    end = run_gang(2, "mpi", MPI, slots=2)
    assert end.condition == "Completed", end
    assert [result.get("metrics") for result in end.results] == [{"sum": 6, "size": 4}] * 2, end.logs


def test_a_rank_that_is_killed_three_times_fails_its_task_and_not_the_gang(run_gang: RunGang) -> None:
    end = run_gang(3, "torch", KILL_RANK)
    assert end.condition == "Completed", end
    assert [result["status"] for result in end.results] == ["crashed", "crashed"]


def test_a_gang_that_loses_a_pod_restarts_and_goes_on_from_its_checkpoint(run_gang: RunGang) -> None:
    end = run_gang(2, "torch", HALVES, total=1, restarts=1, lost="waits to be lost")
    assert (end.condition, end.restarts) == ("Completed", 1), end
    assert [result.get("metrics") for result in end.results] == [{"halves": 1}], end


def test_each_slice_of_a_gang_has_an_exclusive_domain(own_cluster: Cluster, run_gang: RunGang) -> None:
    own_cluster.grow(3)
    placement = Placement(cpu=0.01, memory=MEMORY, exclusive="topology.kubernetes.io/zone")
    end = run_gang(2, "tpu", TPU_SLICES, total=1, slices=2, placement=placement)
    assert end.condition == "Completed", end
    assert end.results[0]["metrics"] == {"slices": "2"}
    slices = [nodes for nodes in end.nodes.values() if len(nodes) == 2]
    assert len(slices) == 2 and all(len(set(nodes)) == 1 for nodes in slices), end.nodes
    [leader] = [nodes for nodes in end.nodes.values() if len(nodes) == 1]
    assert {nodes[0] for nodes in (*slices, leader)} == {"node-0", "node-1", "node-2"}, (
        "the leader runs in neither slice's zone"
    )
