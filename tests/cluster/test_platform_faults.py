"""Failures under a running simulation on a cluster: they cost time but no result; the end is as if undisturbed."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.platform_release import NAMESPACE, PROJECT, Installed, untimed
from tests.waiting import until

#: About five seconds of work for two pods of one worker each.
LOAD: dict[str, Any] = {
    "dataset": "noop",
    "runtime": "python",
    "scenarios": {"range": [0, 400]},
    "params": {"sleep_ms": 25},
}


@pytest.fixture(scope="module")
def undisturbed(platform: Installed) -> list[Any]:
    """Results of the load without failures and without timing."""
    id = platform.submit(**LOAD)
    assert platform.ended(id)["state"] == "succeeded"
    return untimed(platform.results(id))


def at_work(platform: Installed) -> str:
    """Submit the load and wait until it is at work."""
    platform.settle()
    id = platform.submit(**LOAD)
    platform.until(lambda: platform.get(f"/v1/simulations/{id}")["tasks"]["done"] > 0, "results come")
    return id


@pytest.fixture
def running(platform: Installed, undisturbed: list[Any]) -> Iterator[str]:
    """A running simulation; it must end with undisturbed results, and leave no objects."""
    id = at_work(platform)
    yield id
    ends_as(platform, id, undisturbed)


def ends_as(platform: Installed, id: str, undisturbed: list[Any]) -> None:
    """Wait for the end of a simulation; it must have undisturbed results, and leave no objects."""
    ends_as_played(platform, id, undisturbed)
    platform.until(lambda: not platform.left(), "nothing is left of it")


def ends_as_played(platform: Installed, id: str, undisturbed: list[Any]) -> None:
    """Wait for the end of a simulation, which must have undisturbed results."""
    ended = platform.ended(id, 240.0)
    assert ended["state"] == "succeeded", (ended["reason"], platform.messages(id))
    assert untimed(platform.results(id)) == undisturbed


def pod_of(platform: Installed, id: str) -> Any:
    """Return a running pod of a simulation; results may arrive before the kubelet reports it as running."""
    found: list[Any] = []

    def look() -> bool:
        found[:] = running_pods(platform, id)
        return bool(found)

    platform.until(look, "a pod of it runs")
    return found[0]


def running_pods(platform: Installed, id: str) -> list[Any]:
    """Return a simulation's running pods."""
    return [one for one in platform.pods(f"windtunnel/simulation={id}") if one["status"]["phase"] == "Running"]


@pytest.mark.parametrize("container", ["runner", "evaluator", "model-server"])
def test_a_container_is_killed(own_cluster: Cluster, platform: Installed, running: str, container: str) -> None:
    pod = pod_of(platform, running)
    status = next(one for one in pod["status"]["containerStatuses"] if one["name"] == container)
    node = next(one for one in own_cluster.nodes if one.name == pod["spec"]["nodeName"])
    node.kill(status["containerID"])


def test_a_pod_is_deleted(platform: Installed, running: str) -> None:
    name = pod_of(platform, running)["metadata"]["name"]
    platform.cluster.kubectl("delete", "pod", "-n", PROJECT, name, "--wait=false")


def test_a_pod_is_drained_off_its_node(platform: Installed, running: str) -> None:
    name = pod_of(platform, running)["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": PROJECT}}
    path = f"/api/v1/namespaces/{PROJECT}/pods/{name}/eviction"
    platform.cluster.kubectl("create", "--raw", path, "-f", "-", given=json.dumps(eviction))


def test_all_objects_of_a_launch_are_deleted_externally(platform: Installed, running: str) -> None:
    platform.cluster.kubectl("delete", "jobsets", "-n", PROJECT, "--all", "--wait=false")


def test_both_dispatchers_are_killed(platform: Installed, running: str) -> None:
    chosen = ["-n", NAMESPACE, "-l", "app.kubernetes.io/component=dispatch"]
    platform.cluster.kubectl("delete", "pods", *chosen, "--force", "--grace-period=0", "--wait=false")


def test_an_api_pod_ends_while_a_client_reads_and_the_client_continues(platform: Installed, running: str) -> None:
    seen: list[int] = []

    def read() -> bool:
        """Continue the stream where the last connection ended; return whether all results have arrived."""
        with suppress(httpx.HTTPError):
            address = f"{platform.url}/v1/simulations/{running}/results?follow=true&skip={len(seen)}"
            with httpx.stream("GET", address, timeout=30.0) as answer:
                seen.extend(json.loads(line)["task"] for line in answer.iter_lines() if line)
        return len(seen) >= 400

    reader = threading.Thread(target=lambda: until(read, 240.0), daemon=True)
    reader.start()
    platform.until(lambda: seen, "the client reads")
    chosen = ["-n", NAMESPACE, "-l", "app.kubernetes.io/component=api"]
    platform.cluster.kubectl("delete", "pods", *chosen, "--force", "--grace-period=0", "--wait=false")
    reader.join(240.0)
    assert sorted(seen) == list(range(400))


def test_the_api_server_is_down_for_longer_than_the_grace_period(
    own_cluster: Cluster, platform: Installed, running: str
) -> None:
    own_cluster.control_plane.stop("kube-apiserver")
    time.sleep(30.0)  # the grace period is 20 s; the runners continue, as their leases show
    own_cluster.control_plane.resume("kube-apiserver")
    own_cluster.control_plane.wait()


def test_etcd_is_restarted(own_cluster: Cluster, platform: Installed, running: str) -> None:
    own_cluster.control_plane.stop("etcd")
    own_cluster.control_plane.wait_until_away()
    own_cluster.control_plane.resume("etcd")
    own_cluster.control_plane.wait()


def test_its_number_of_workers_changes_while_it_runs(platform: Installed, running: str) -> None:
    platform.until(lambda: len(running_pods(platform, running)) == 2, "both pods are known to run")
    first = {one["metadata"]["name"] for one in running_pods(platform, running)}
    answer = httpx.patch(f"{platform.url}/v1/simulations/{running}", json={"workers": 1}, timeout=30.0)
    assert answer.status_code == 200, answer.text
    platform.until(lambda: len(running_pods(platform, running)) == 1, "one pod is left")
    assert {one["metadata"]["name"] for one in running_pods(platform, running)} < first, "it is one of those there were"


def test_the_projects_namespace_is_deleted_and_created_again(platform: Installed, running: str) -> None:
    platform.cluster.kubectl("delete", "namespace", PROJECT, timeout=120)
    platform.until(lambda: gone(platform, running), "it waits for its namespace")
    platform.upgrade()


def gone(platform: Installed, id: str) -> bool:
    """Return whether a simulation waits for a missing namespace."""
    return PROJECT in (platform.get(f"/v1/simulations/{id}")["reason"] or "")


@pytest.mark.parametrize("power", [False, True], ids=["its kubelet and runtime stop", "its power is cut"])
def test_a_node_is_lost(own_cluster: Cluster, platform: Installed, undisturbed: list[Any], power: bool) -> None:
    own_cluster.grow(2)
    node = own_cluster.node(1)
    with platform.only(node.name):
        id = at_work(platform)
    assert pod_of(platform, id)["spec"]["nodeName"] == node.name
    node.cut() if power else node.stop()
    try:
        ends_as_played(platform, id, undisturbed)
        node.wait(ready=False)
    finally:
        node.start()
        node.wait()
    platform.until(lambda: not platform.left(), "nothing is left of it")
