"""Gangs on a real cluster: their objects as its API server takes them, their names resolving, their ends."""

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.domain.launches import Launch, Placement
from runtimes.images import build, names
from tests.cluster.client import Client
from tests.cluster.cluster import Cluster
from tests.unit.launch_samples import ALL, OPTIONS, SAMPLES, gang
from workers.executors.kubernetes import manifests
from workers.executors.kubernetes.options import Options

ROOT = Path(__file__).parents[2]
#: What the samples name and a cluster has to have before it takes them.
PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "low"},
    "value": -10,
}
#: A sum over all replicas, through the first of them, which all know by name; each also resolves every other one.
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
KILLED = """
import os, time
if os.environ["NODE_RANK"] == "1":
    os.kill(os.getpid(), 9)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def image(cluster: Client) -> str:
    """The image that a gang of Python runs in."""
    made = build.build(names.images()["python"], ROOT / "var" / "images")
    cluster.import_image(made.archive)
    return made.reference


def options(namespace: str, image: str = "") -> Options:
    """Return options that name the image that was imported, whatever became of the code meanwhile."""
    images = dataclasses.replace(OPTIONS.images, tag=image.rpartition(":")[2])
    return dataclasses.replace(OPTIONS, namespace=namespace, images=images, pull_policy="Never")


def small(size: int, communication: str, program: str, **changes: Any) -> Launch:
    placement = changes.pop("placement", Placement(cpu=0.01, memory=128 << 20))
    return gang(size, communication, placement, command=("python", "-c", program), **changes)


@dataclasses.dataclass(frozen=True)
class End:
    """How a JobSet ended, and what its pods said and where they were."""

    condition: str
    said: str
    restarts: int
    seconds: float
    nodes: dict[str, list[str]]


def played(cluster: Client, namespace: str, image: str, launch: Launch) -> End:
    """Create a gang, wait for its end and take it away."""
    objects = manifests.of(launch, options(namespace, image), ALL)
    began = time.monotonic()
    cluster.apply(*reversed(objects))
    name = objects[0]["metadata"]["name"]
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/{name}"
    found: dict[str, Any] = {}

    def ended() -> bool:
        found.update(cluster.get(path).get("status", {}))
        return any(one["type"] in {"Completed", "Failed"} and one["status"] == "True" for one in conditions(found))

    cluster.until(ended, f"{name} ends", patience=90)
    seconds = time.monotonic() - began
    pods = cluster.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    nodes: dict[str, list[str]] = {}
    for pod in pods:
        nodes.setdefault(pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-key"], []).append(pod["spec"]["nodeName"])
    leader = "jobset.sigs.k8s.io/replicatedjob-name=l"
    said = cluster.kubectl("logs", "-n", namespace, "-l", leader, "--tail=-1")
    cluster.kubectl("delete", "-n", namespace, "jobset", name)
    [condition] = [one["type"] for one in conditions(found) if one["type"] in {"Completed", "Failed"}]
    return End(condition, said, int(found.get("restarts", 0)), seconds, nodes)


def conditions(status: dict[str, Any]) -> list[dict[str, Any]]:
    return list(status.get("conditions", []))


@pytest.fixture
def served(cluster: Client) -> Iterator[None]:
    """What samples name, for as long as they are tried."""
    cluster.jobset()
    cluster.trainer()
    cluster.apply(PRIORITY, TRAINING)
    yield
    cluster.kubectl("delete", "priorityclass", "low")
    cluster.kubectl("delete", "clustertrainingruntime", "torch-distributed")


TRAINING: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch-distributed", "labels": {"trainer.kubeflow.org/framework": "torch"}},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "none:0"}]}}},
                        },
                    }
                ]
            }
        },
    },
}


@pytest.mark.usefixtures("served")
def test_a_real_api_server_takes_every_object_as_it_is(cluster: Client, namespace: str) -> None:
    """All but those of operators that this cluster does not run; their schemas are all there is to hold them to."""
    for name, (launch, serves) in SAMPLES.items():
        objects = manifests.of(launch, options(namespace), serves)
        if objects[0]["kind"] == "MPIJob":
            continue
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        said = cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", given=document)
        assert said.count("created (server dry run)") == len(objects), (name, said)


def test_a_gang_finds_its_peers_by_name_and_is_done_when_its_leader_is(
    cluster: Client, namespace: str, image: str
) -> None:
    cluster.jobset()
    end = played(cluster, namespace, image, small(3, "torch", SUM))
    assert end.condition == "Completed", end
    assert json.loads(end.said) == {"sum": 3, "peers": 3}


def test_a_killed_replica_fails_the_gang(cluster: Client, namespace: str, image: str) -> None:
    cluster.jobset()
    end = played(cluster, namespace, image, small(3, "torch", KILLED))
    assert (end.condition, end.restarts) == ("Failed", 0), end


def test_a_gang_begins_again_as_often_as_it_was_asked_to(cluster: Client, namespace: str, image: str) -> None:
    cluster.jobset()
    end = played(cluster, namespace, image, small(2, "torch", KILLED, restarts=1))
    assert (end.condition, end.restarts) == ("Failed", 1), end


def test_each_slice_of_a_gang_has_a_domain_to_itself(own_cluster: Cluster, namespace: str) -> None:
    own_cluster.jobset()
    own_cluster.grow(3)
    made = build.build(names.images()["python"], ROOT / "var" / "images")
    own_cluster.import_image(made.archive)
    image = made.reference
    placement = Placement(cpu=0.01, memory=128 << 20, exclusive="topology.kubernetes.io/zone")
    check = "import os; assert os.environ['MEGASCALE_NUM_SLICES'] == '3' and os.environ['TPU_WORKER_ID'] in '01'"
    end = played(own_cluster, namespace, image, small(2, "tpu", check, slices=3, placement=placement))
    assert end.condition == "Completed", end
    slices = [nodes for nodes in end.nodes.values() if len(nodes) == 2]
    assert len(slices) == 3 and all(len(set(nodes)) == 1 for nodes in slices), end.nodes
    assert {nodes[0] for nodes in slices} == {"node-0", "node-1", "node-2"}
