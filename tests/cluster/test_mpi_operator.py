"""Gangs of a real MPI operator: ranks connect by ssh in restricted pods, and every end is reported."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.domain.scheduling.launches import Gang, Launch, LaunchStatus, Phase, Placement
from tests.cluster import mpi_images, tools
from tests.cluster.cluster import Cluster
from tests.contracts.test_executor import launch_of
from tests.system.runner_api import LAUNCH
from workers.executors import kubernetes
from workers.executors.base import LocalPaths
from workers.executors.kubernetes.executor import KubernetesExecutor
from workers.executors.kubernetes.status_messages import make_note

#: Kinds of the objects of a launch with the MPI operator.
KINDS = "mpijobs,jobs,pods,secrets,services,networkpolicies"
#: Labels of the operator's pods.
OWNER, LEADER = f"wt-{LAUNCH}", "training.kubeflow.org/job-role=launcher"
#: Seconds for a state on a busy machine.
PATIENCE = 180
#: Beginning of all programs: their ranks connect, and each runs on a worker.
CONNECT = """
import socket, sys, time
from mpi4py import MPI
communicator = MPI.COMM_WORLD
total, hosts = communicator.allreduce(communicator.rank), set(communicator.allgather(socket.gethostname()))
assert len(hosts) == 2 and all("-worker-" in host for host in hosts), hosts
if communicator.rank == 0:
    print(f"{total} of {communicator.size} connected", flush=True)
"""
CONNECT_AND_FAIL = CONNECT + "sys.exit(3 * communicator.rank)"
CONNECT_AND_SLEEP = CONNECT + "time.sleep(3600)"
#: Sleeps in the first attempt, and ends in the second; the second worker remembers the first attempt.
CONNECT_AND_SLEEP_ONCE = (
    CONNECT
    + """
import pathlib
memory = pathlib.Path("/tmp/attempts")
again = communicator.bcast(memory.exists(), root=1)
memory.touch()
time.sleep(0 if again else 3600)
"""
)
CONNECT_AND_END_A_WORKER = CONNECT + "import os; communicator.rank == 1 and os.kill(1, 15); time.sleep(3600)"
ImportImage = Callable[[str], str]
OpenExecutor = Callable[..., KubernetesExecutor]


@pytest.fixture(scope="module")
def import_image(own_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> ImportImage:
    """Import images with an MPI into the cluster, each once; return their names."""
    own_cluster.mpi_operator()
    references: dict[str, str] = {}

    def import_once(implementation: str) -> str:
        if implementation not in references:
            references[implementation], archive = mpi_images.write(implementation, tmp_path_factory.mktemp("mpi"))
            own_cluster.import_image(archive)
        return references[implementation]

    return import_once


@pytest.fixture
def open_executor(own_cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[OpenExecutor]:
    """Open executors whose pods run in the test's namespace, with a project's restricted pod security."""
    own_cluster.mpi_operator()
    own_cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    executors: list[KubernetesExecutor] = []
    paths = LocalPaths(home=tmp_path, run_dir=tmp_path, environments=tmp_path, runner_api_url="")

    def make(**options: Any) -> KubernetesExecutor:
        defaults = {"namespace": namespace, "installation": namespace, "pull_policy": "Never", **options}
        executors.append(
            kubernetes.open(
                "west", kubernetes.KIND.parse({"kubeconfig": str(own_cluster.kubeconfig), **defaults}), paths
            )
        )
        return executors[-1]

    yield make
    for executor in executors:
        executor.close()


def launch(image: str, program: str, **changes: Any) -> Launch:
    """Return a launch of two workers."""
    defaults = {"size": 2, "communication": "mpi", "operator": "mpi-operator", "command": ("python", "-c", program)}
    gang = Gang(**{**defaults, "image": image, **changes})
    return launch_of("http://192.0.2.1:1", gang=gang, placement=Placement(cpu=0.02, memory=256 << 20))


def wait_for_status(
    cluster: Cluster, executor: KubernetesExecutor, condition: Callable[[LaunchStatus], bool], description: str
) -> LaunchStatus:
    """Observe the launch until its status meets a condition; return the status."""
    statuses: list[LaunchStatus] = []

    def holds() -> bool:
        statuses[:] = executor.observe([LAUNCH]).values()
        return bool(statuses) and condition(statuses[0])

    try:
        cluster.until(holds, description, PATIENCE)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{statuses}\n{logs(cluster, executor.options.namespace)}") from None
    return statuses[0]


def has_ended(status: LaunchStatus) -> bool:
    return status.phase is Phase.ENDED


def logs(cluster: Cluster, namespace: str) -> str:
    """Return the output of a launch's programs."""
    pods = cluster.kubectl("get", "pods", "-n", namespace, "-o", "json")
    sections = []
    for pod in json.loads(pods)["items"]:
        name = pod["metadata"]["name"]
        try:
            sections.append(f"{name}:\n" + cluster.kubectl("logs", "-n", namespace, name, "--tail=-1"))
        except RuntimeError as error:
            sections.append(f"{name}: {error}")
    return "\n".join(sections)


def evict(cluster: Cluster, namespace: str, role: str) -> None:
    """Evict the first pod of a role from its node, as a drain does."""
    selector = f"training.kubeflow.org/job-role={role}"
    pods = cluster.kubectl("get", "pods", "-n", namespace, "-l", selector, "-o", "name").split()
    name = min(pods).partition("/")[2]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    cluster.control_plane.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction)


def wait_until_no_pod_has_resources(cluster: Cluster, namespace: str) -> None:
    """Wait until the launcher has ended and no pod has processors and memory of a node; no executor observes."""

    def ended() -> bool:
        (job,) = json.loads(cluster.kubectl("get", "mpijobs", "-n", namespace, "-o", "json"))["items"]
        pods = json.loads(cluster.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
        phases = {pod["status"]["phase"] for pod in pods}
        return "completionTime" in job.get("status", {}) and phases <= {"Succeeded", "Failed"}

    cluster.until(ended, "the launcher has ended, and all workers with it", PATIENCE)


def cancel_and_wait_until_deleted(cluster: Cluster, executor: KubernetesExecutor, namespace: str) -> None:
    """Cancel a launch, and wait until its objects are deleted."""
    executor.cancel(LAUNCH)

    def all_deleted() -> bool:
        remaining_objects = cluster.kubectl("get", KINDS, "-n", namespace, "-o", "name").split()
        remaining_objects += cluster.kubectl("get", "configmaps", "-n", namespace, "-o", "name").split()
        return remaining_objects == ["configmap/kube-root-ca.crt"]

    cluster.until(all_deleted, "all of its objects are deleted", PATIENCE)


@pytest.mark.parametrize("implementation", ["openmpi", "mpich"])
def test_ranks_connect_with_the_operators_keys(
    own_cluster: Cluster, open_executor: OpenExecutor, import_image: ImportImage, namespace: str, implementation: str
) -> None:
    executor = open_executor()
    executor.submit(launch(import_image(implementation), CONNECT, implementation=implementation, slots=2))
    status = wait_for_status(own_cluster, executor, has_ended, "the gang ends")
    assert status == LaunchStatus(id=LAUNCH, phase=Phase.ENDED, exit=0), logs(own_cluster, namespace)
    assert "6 of 4 connected" in own_cluster.kubectl("logs", "-n", namespace, "-l", LEADER)
    cancel_and_wait_until_deleted(own_cluster, executor, namespace)


def test_the_exit_code_of_a_failed_program_is_reported(
    own_cluster: Cluster, open_executor: OpenExecutor, import_image: ImportImage, namespace: str
) -> None:
    executor = open_executor()
    executor.submit(launch(import_image("openmpi"), CONNECT_AND_FAIL))
    status = wait_for_status(own_cluster, executor, has_ended, "the gang ends")
    assert status.exit == 3 and str(status.reason).startswith("its program ended with exit code 3"), logs(
        own_cluster, namespace
    )
    cancel_and_wait_until_deleted(own_cluster, executor, namespace)


@pytest.mark.parametrize("role", ["worker", "launcher"])
def test_a_gang_that_lost_a_pod_to_a_drain_has_not_ended_by_itself(
    own_cluster: Cluster, open_executor: OpenExecutor, import_image: ImportImage, namespace: str, role: str
) -> None:
    executor = open_executor()
    executor.submit(launch(import_image("openmpi"), CONNECT_AND_SLEEP))
    wait_for_status(own_cluster, executor, lambda status: status.phase is Phase.RUNNING, "the gang runs")
    own_cluster.until(lambda: "1 of 2 connected" in logs(own_cluster, namespace), "its ranks are connected", PATIENCE)
    evict(own_cluster, namespace, role)
    status = wait_for_status(own_cluster, executor, has_ended, "the gang ends")
    assert status.exit is None and status.reason, (status, logs(own_cluster, namespace))
    cancel_and_wait_until_deleted(own_cluster, executor, namespace)


@pytest.mark.parametrize(("program", "exit"), [(CONNECT, 0), (CONNECT_AND_FAIL, 3)])
def test_workers_end_with_the_launcher_while_the_dispatcher_is_stopped(
    own_cluster: Cluster,
    open_executor: OpenExecutor,
    import_image: ImportImage,
    namespace: str,
    program: str,
    exit: int,
) -> None:
    open_executor().submit(launch(import_image("openmpi"), program))
    wait_until_no_pod_has_resources(own_cluster, namespace)
    next_executor = open_executor()
    assert wait_for_status(own_cluster, next_executor, has_ended, "the end is observed").exit == exit
    cancel_and_wait_until_deleted(own_cluster, next_executor, namespace)


@pytest.mark.parametrize("implementation", ["openmpi", "mpich"])
def test_the_loss_of_a_worker_is_reported_when_the_other_workers_have_ended(
    own_cluster: Cluster, open_executor: OpenExecutor, import_image: ImportImage, namespace: str, implementation: str
) -> None:
    program = launch(import_image(implementation), CONNECT_AND_SLEEP, implementation=implementation)
    open_executor().submit(program)
    own_cluster.until(lambda: "1 of 2 connected" in logs(own_cluster, namespace), "its ranks are connected", PATIENCE)
    evict(own_cluster, namespace, "worker")
    wait_until_no_pod_has_resources(own_cluster, namespace)
    next_executor = open_executor()
    status = wait_for_status(own_cluster, next_executor, has_ended, "the end is observed")
    assert status.exit is None and status.reason == make_note("PodTaken").message, (
        status,
        logs(own_cluster, namespace),
    )
    cancel_and_wait_until_deleted(own_cluster, next_executor, namespace)


def test_a_program_that_ends_its_own_worker_has_failed(
    own_cluster: Cluster, open_executor: OpenExecutor, import_image: ImportImage, namespace: str
) -> None:
    open_executor().submit(launch(import_image("openmpi"), CONNECT_AND_END_A_WORKER))
    wait_until_no_pod_has_resources(own_cluster, namespace)
    next_executor = open_executor()
    status = wait_for_status(own_cluster, next_executor, has_ended, "the end is observed")
    assert status.exit and "Workers were lost: wt-" in str(status.reason), (status, logs(own_cluster, namespace))
    cancel_and_wait_until_deleted(own_cluster, next_executor, namespace)


@pytest.mark.parametrize("implementation", ["openmpi", "mpich"])
def test_a_gang_that_lost_a_worker_is_restarted_with_its_replacement(
    own_cluster: Cluster, open_executor: OpenExecutor, import_image: ImportImage, namespace: str, implementation: str
) -> None:
    image = import_image(implementation)
    open_executor().submit(launch(image, CONNECT_AND_SLEEP_ONCE, implementation=implementation, restarts=1))
    own_cluster.until(lambda: "1 of 2 connected" in logs(own_cluster, namespace), "its ranks are connected", PATIENCE)
    evict(own_cluster, namespace, "worker")
    wait_until_no_pod_has_resources(own_cluster, namespace)
    next_executor = open_executor()
    status = wait_for_status(own_cluster, next_executor, has_ended, "the end is observed")
    assert status == LaunchStatus(id=LAUNCH, phase=Phase.ENDED, exit=0), logs(own_cluster, namespace)
    cancel_and_wait_until_deleted(own_cluster, next_executor, namespace)


def test_a_missing_image_is_noted_and_becomes_hopeless(
    own_cluster: Cluster, open_executor: OpenExecutor, namespace: str
) -> None:
    executor = open_executor(patience=3)
    executor.submit(launch("windtunnel.local/none:1", CONNECT_AND_SLEEP))
    status = wait_for_status(own_cluster, executor, lambda status: status.hopeless, "the launch is hopeless")
    assert "has no image windtunnel.local/none:1" in str(status.reason)
    cancel_and_wait_until_deleted(own_cluster, executor, namespace)


def test_an_image_without_an_ssh_server_ends_with_a_reason(
    own_cluster: Cluster, open_executor: OpenExecutor, namespace: str
) -> None:
    executor = open_executor()
    executor.submit(launch(tools.PROBE, CONNECT_AND_SLEEP))
    status = wait_for_status(own_cluster, executor, has_ended, "the gang ends")
    assert status.exit and "could not be started" in str(status.reason) and "sshd" in str(status.reason), status
    cancel_and_wait_until_deleted(own_cluster, executor, namespace)


def test_an_exhausted_quota_is_noted(
    own_cluster: Cluster, open_executor: OpenExecutor, import_image: ImportImage, namespace: str
) -> None:
    own_cluster.kubectl("create", "quota", "pods", "--hard=pods=1", "-n", namespace)
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/pods"
    own_cluster.until(lambda: "used" in own_cluster.get(path).get("status", {}), "the quota is counted")
    executor = open_executor()
    executor.submit(launch(import_image("openmpi"), CONNECT_AND_SLEEP))
    wait_for_status(
        own_cluster, executor, lambda status: any(note.key == "quota" for note in status.notes), "the quota is noted"
    )
    cancel_and_wait_until_deleted(own_cluster, executor, namespace)
