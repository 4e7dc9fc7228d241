"""Failures during a simulation on a cluster: they cost time, but the results are those of an undisturbed run."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.platform_release import NAMESPACE, PROJECT, PlatformRelease, without_timing
from tests.waiting import until

#: About five seconds of work for two pods of one worker each.
LOAD: dict[str, Any] = {
    "dataset": "noop",
    "runtime": "python",
    "scenarios": {"range": [0, 400]},
    "params": {"sleep_ms": 25},
}
#: The same load, of about fifty seconds; the results are equal.
LONG_LOAD = LOAD | {"params": {"sleep_ms": 250}}


@pytest.fixture(scope="module")
def undisturbed(platform: PlatformRelease) -> list[Any]:
    """Results of the load without failures and without timing."""
    id = platform.submit(**LOAD)
    assert platform.wait_for_end(id)["state"] == "succeeded"
    return without_timing(platform.results(id))


def start_load(platform: PlatformRelease, load: dict[str, Any] = LOAD) -> str:
    """Submit the load and wait until a task is done."""
    platform.ensure_jobset_answers()
    id = platform.submit(**load)
    platform.until(lambda: platform.get(f"/v1/simulations/{id}")["tasks"]["done"] > 0, "a task is done")
    return id


@pytest.fixture
def running(platform: PlatformRelease, undisturbed: list[Any], request: pytest.FixtureRequest) -> Iterator[str]:
    """A running simulation; it must end with undisturbed results, and leave no objects."""
    id = start_load(platform, getattr(request, "param", LOAD))
    yield id
    assert_undisturbed_and_cleaned_up(platform, id, undisturbed)


def assert_undisturbed_and_cleaned_up(platform: PlatformRelease, id: str, undisturbed: list[Any]) -> None:
    """Wait for the end of a simulation; check that its results are undisturbed and that no objects remain."""
    assert_undisturbed(platform, id, undisturbed)
    platform.until(lambda: not platform.remaining_objects(), "all of its objects are deleted")


def assert_undisturbed(platform: PlatformRelease, id: str, undisturbed: list[Any]) -> None:
    """Wait for the end of a simulation; check that its results are undisturbed."""
    ended = platform.wait_for_end(id, 240.0)
    assert ended["state"] == "succeeded", (ended["reason"], platform.messages(id))
    assert without_timing(platform.results(id)) == undisturbed


def pod_of(platform: PlatformRelease, id: str) -> Any:
    """Return a running pod of a simulation; results may arrive before the kubelet reports it as running."""
    pods: list[Any] = []

    def a_pod_runs() -> bool:
        pods[:] = running_pods(platform, id)
        return bool(pods)

    platform.until(a_pod_runs, "a pod of the simulation runs")
    return pods[0]


def running_pods(platform: PlatformRelease, id: str) -> list[Any]:
    """Return a simulation's running pods."""
    return [pod for pod in platform.pods(f"windtunnel/simulation={id}") if pod["status"]["phase"] == "Running"]


@pytest.mark.parametrize("container", ["runner", "evaluator", "model-server"])
def test_a_killed_container_changes_no_result(
    own_cluster: Cluster, platform: PlatformRelease, running: str, container: str
) -> None:
    pod = pod_of(platform, running)
    status = next(status for status in pod["status"]["containerStatuses"] if status["name"] == container)
    node = next(node for node in own_cluster.nodes if node.name == pod["spec"]["nodeName"])
    node.kill(status["containerID"])


def test_a_deleted_pod_changes_no_result(platform: PlatformRelease, running: str) -> None:
    name = pod_of(platform, running)["metadata"]["name"]
    platform.cluster.kubectl("delete", "pod", "-n", PROJECT, name, "--wait=false")


def test_an_evicted_pod_changes_no_result(platform: PlatformRelease, running: str) -> None:
    name = pod_of(platform, running)["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": PROJECT}}
    path = f"/api/v1/namespaces/{PROJECT}/pods/{name}/eviction"
    platform.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def test_externally_deleted_launch_objects_change_no_result(platform: PlatformRelease, running: str) -> None:
    platform.cluster.kubectl("delete", "jobsets", "-n", PROJECT, "--all", "--wait=false")


def test_killed_dispatchers_change_no_result(platform: PlatformRelease, running: str) -> None:
    selection = ["-n", NAMESPACE, "-l", "app.kubernetes.io/component=dispatch"]
    platform.cluster.kubectl("delete", "pods", *selection, "--force", "--grace-period=0", "--wait=false")


def test_a_client_continues_to_read_results_after_its_api_pod_is_killed(
    platform: PlatformRelease, running: str
) -> None:
    tasks: list[int] = []

    def read() -> bool:
        """Continue the stream where the last connection ended; return whether all results have arrived."""
        with suppress(httpx.HTTPError):
            url = f"{platform.url}/v1/simulations/{running}/results?follow=true&skip={len(tasks)}"
            with httpx.stream("GET", url, timeout=30.0) as answer:
                tasks.extend(json.loads(line)["task"] for line in answer.iter_lines() if line)
        return len(tasks) >= 400

    reader = threading.Thread(target=lambda: until(read, 240.0), daemon=True)
    reader.start()
    platform.until(lambda: tasks, "the client has read results")
    selection = ["-n", NAMESPACE, "-l", "app.kubernetes.io/component=api"]
    platform.cluster.kubectl("delete", "pods", *selection, "--force", "--grace-period=0", "--wait=false")
    reader.join(240.0)
    assert sorted(tasks) == list(range(400))


@pytest.mark.parametrize("running", [LONG_LOAD], indirect=True, ids=["long"])
def test_an_api_server_outage_longer_than_the_grace_period_changes_no_result(
    own_cluster: Cluster, platform: PlatformRelease, running: str
) -> None:
    own_cluster.control_plane.stop("kube-apiserver")
    time.sleep(30.0)  # the grace period is 20 s; the runners keep renewing their leases
    own_cluster.control_plane.resume("kube-apiserver")
    own_cluster.control_plane.wait()


def test_an_etcd_restart_changes_no_result(own_cluster: Cluster, platform: PlatformRelease, running: str) -> None:
    own_cluster.control_plane.stop("etcd")
    own_cluster.control_plane.wait_until_unreachable()
    own_cluster.control_plane.resume("etcd")
    own_cluster.control_plane.wait()


def test_resizing_a_running_simulation_changes_no_result(platform: PlatformRelease, running: str) -> None:
    platform.until(lambda: len(running_pods(platform, running)) == 2, "both pods are reported as running")
    before = {pod["metadata"]["name"] for pod in running_pods(platform, running)}
    answer = httpx.patch(f"{platform.url}/v1/simulations/{running}", json={"workers": 1}, timeout=30.0)
    assert answer.status_code == 200, answer.text
    platform.until(lambda: len(running_pods(platform, running)) == 1, "a single pod runs")
    assert {pod["metadata"]["name"] for pod in running_pods(platform, running)} < before, (
        "the remaining pod is a pod of before"
    )


# pods that end with their namespace have their grace period, in which the short load would be done
@pytest.mark.parametrize("running", [LONG_LOAD], indirect=True, ids=["long"])
def test_a_deleted_and_recreated_project_namespace_changes_no_result(platform: PlatformRelease, running: str) -> None:
    platform.cluster.kubectl("delete", "namespace", PROJECT, timeout=120)
    try:
        platform.until(lambda: waits_for_namespace(platform, running), "the simulation waits for its namespace")
    finally:
        platform.upgrade()


def waits_for_namespace(platform: PlatformRelease, id: str) -> bool:
    """Return whether a simulation waits for a missing namespace."""
    return PROJECT in (platform.get(f"/v1/simulations/{id}")["reason"] or "")


@pytest.mark.parametrize("power", [False, True], ids=["kubelet and containerd stop", "power cut"])
def test_a_lost_node_changes_no_result(
    own_cluster: Cluster, platform: PlatformRelease, undisturbed: list[Any], power: bool
) -> None:
    own_cluster.grow(2)
    node = own_cluster.node(1)
    with platform.cordon_all_except(node.name):
        id = start_load(platform)
    assert pod_of(platform, id)["spec"]["nodeName"] == node.name
    node.cut() if power else node.stop()
    try:
        assert_undisturbed(platform, id, undisturbed)
        node.wait(ready=False)
    finally:
        node.start()
        node.wait()
    platform.until(lambda: not platform.remaining_objects(), "all of its objects are deleted")
