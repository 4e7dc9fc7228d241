"""Gangs of a real MPI operator: ranks connect by ssh in restricted pods, and every end is reported."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.domain.launches import Gang, Launch, LaunchStatus, Phase, Placement
from tests.cluster import mpi_images, tools
from tests.cluster.cluster import Cluster
from tests.contracts.test_executor import launch_of
from tests.system.runner_api import LAUNCH
from workers.executors import kubernetes
from workers.executors.base import LocalPaths
from workers.executors.kubernetes.executor import KubernetesExecutor

#: Kinds of objects that such a launch creates.
MADE = "mpijobs,jobs,pods,secrets,services,networkpolicies"
#: Labels of the operator's pods.
OWNER, LEADER = f"wt-{LAUNCH}", "training.kubeflow.org/job-role=launcher"
#: Seconds for a state on a busy machine.
PATIENCE = 180
#: Beginning of all programs: their ranks connect, and each runs on a worker.
MEET = """
import socket, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
total, hosts = world.allreduce(world.rank), set(world.allgather(socket.gethostname()))
assert len(hosts) == 2 and all("-worker-" in host for host in hosts), hosts
if world.rank == 0:
    print(f"{total} of {world.size} met", flush=True)
"""
FAIL = MEET + "sys.exit(3 * world.rank)"
LAST = MEET + "time.sleep(3600)"
Bring = Callable[[str], str]
Open = Callable[..., KubernetesExecutor]


@pytest.fixture(scope="module")
def image(own_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Bring:
    """Import an image with an MPI into the cluster; return its name."""
    own_cluster.mpi_operator()
    made: dict[str, str] = {}

    def bring(implementation: str) -> str:
        if implementation not in made:
            made[implementation], archive = mpi_images.write(implementation, tmp_path_factory.mktemp("mpi"))
            own_cluster.import_image(archive)
        return made[implementation]

    return bring


@pytest.fixture
def opened(own_cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Open]:
    """Open an executor whose pods run in this test's namespace, with a project's restricted pod security."""
    own_cluster.mpi_operator()
    own_cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    made: list[KubernetesExecutor] = []
    here = LocalPaths(home=tmp_path, run_dir=tmp_path, environments=tmp_path, runner_api_url="")

    def make(**options: Any) -> KubernetesExecutor:
        given = {"namespace": namespace, "installation": namespace, "pull_policy": "Never", "cores": 2, **options}
        made.append(
            kubernetes.open("west", kubernetes.KIND.parse({"kubeconfig": str(own_cluster.kubeconfig), **given}), here)
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


def launch(image: str, program: str, **changes: Any) -> Launch:
    """Return a launch of two workers."""
    asked = {"size": 2, "communication": "mpi", "operator": "mpi-operator", "command": ("python", "-c", program)}
    gang = Gang(**{**asked, "image": image, **changes})
    return launch_of("http://192.0.2.1:1", gang=gang, placement=Placement(cpu=0.02, memory=256 << 20))


def seen(cluster: Cluster, executor: KubernetesExecutor, so: Callable[[LaunchStatus], bool], what: str) -> LaunchStatus:
    """Observe until a condition holds."""
    found: list[LaunchStatus] = []

    def look() -> bool:
        found[:] = executor.observe([LAUNCH]).values()
        return bool(found) and so(found[0])

    try:
        cluster.until(look, what, PATIENCE)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{found}\n{said(cluster)}") from None
    return found[0]


def over(one: LaunchStatus) -> bool:
    return one.phase is Phase.ENDED


def said(cluster: Cluster) -> str:
    """Return the output of all launches' programs."""
    pods = ("--all-namespaces", "-l", "windtunnel/launch", "-o", "json")
    words = []
    for pod in json.loads(cluster.kubectl("get", "pods", *pods))["items"]:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        try:
            words.append(f"{name}:\n" + cluster.kubectl("logs", "-n", namespace, name, "--tail=-1"))
        except RuntimeError as error:
            words.append(f"{name}: {error}")
    return "\n".join(words)


def cleared(cluster: Cluster, executor: KubernetesExecutor, namespace: str) -> None:
    """Cancel a launch, and wait until its objects are deleted."""
    executor.cancel(LAUNCH)

    def nothing() -> bool:
        left = cluster.kubectl("get", MADE, "-n", namespace, "-o", "name").split()
        left += cluster.kubectl("get", "configmaps", "-n", namespace, "-o", "name").split()
        return left == ["configmap/kube-root-ca.crt"]

    cluster.until(nothing, "all of it is gone", PATIENCE)


@pytest.mark.parametrize("implementation", ["openmpi", "mpich"])
def test_ranks_connect_with_the_operators_keys(
    own_cluster: Cluster, opened: Open, image: Bring, namespace: str, implementation: str
) -> None:
    executor = opened()
    executor.submit(launch(image(implementation), MEET, implementation=implementation, slots=2))
    found = seen(own_cluster, executor, over, "it ends")
    assert found == LaunchStatus(id=LAUNCH, phase=Phase.ENDED, exit=0), said(own_cluster)
    assert "6 of 4 met" in own_cluster.kubectl("logs", "-n", namespace, "-l", LEADER)
    cleared(own_cluster, executor, namespace)


def test_the_exit_code_of_a_failed_program_is_reported(
    own_cluster: Cluster, opened: Open, image: Bring, namespace: str
) -> None:
    executor = opened()
    executor.submit(launch(image("openmpi"), FAIL))
    found = seen(own_cluster, executor, over, "it ends")
    assert found.exit == 3 and str(found.reason).startswith("its program ended with exit code 3"), said(own_cluster)
    cleared(own_cluster, executor, namespace)


@pytest.mark.parametrize("role", ["worker", "launcher"])
def test_a_gang_that_lost_a_pod_to_a_drain_has_not_ended_by_itself(
    own_cluster: Cluster, opened: Open, image: Bring, namespace: str, role: str
) -> None:
    executor = opened()
    executor.submit(launch(image("openmpi"), LAST))
    seen(own_cluster, executor, lambda one: one.phase is Phase.RUNNING, "it runs")
    own_cluster.until(lambda: "1 of 2 met" in said(own_cluster), "its ranks have met", PATIENCE)
    chosen = f"training.kubeflow.org/job-role={role}"
    name = own_cluster.kubectl("get", "pods", "-n", namespace, "-l", chosen, "-o", "name").split()[0].partition("/")[2]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    own_cluster.control_plane.request("POST", path, eviction)
    found = seen(own_cluster, executor, over, "it ends")
    assert found.exit is None and found.reason, (found, said(own_cluster))
    cleared(own_cluster, executor, namespace)


def test_a_missing_image_is_noted_and_becomes_hopeless(own_cluster: Cluster, opened: Open, namespace: str) -> None:
    executor = opened(patience=3)
    executor.submit(launch("windtunnel.local/none:1", LAST))
    found = seen(own_cluster, executor, lambda one: one.hopeless, "it is hopeless")
    assert "has no image windtunnel.local/none:1" in str(found.reason)
    cleared(own_cluster, executor, namespace)


def test_an_image_without_an_ssh_server_ends_with_a_reason(own_cluster: Cluster, opened: Open, namespace: str) -> None:
    executor = opened()
    executor.submit(launch(tools.PROBE, LAST))
    found = seen(own_cluster, executor, over, "it ends")
    assert found.exit and "could not be started" in str(found.reason) and "sshd" in str(found.reason), found
    cleared(own_cluster, executor, namespace)


def test_an_exhausted_quota_is_noted(own_cluster: Cluster, opened: Open, image: Bring, namespace: str) -> None:
    own_cluster.kubectl("create", "quota", "pods", "--hard=pods=1", "-n", namespace)
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/pods"
    own_cluster.until(lambda: "used" in own_cluster.get(path).get("status", {}), "the quota is counted")
    executor = opened()
    executor.submit(launch(image("openmpi"), LAST))
    seen(own_cluster, executor, lambda one: any(note.key == "quota" for note in one.notes), "the quota is told")
    cleared(own_cluster, executor, namespace)
