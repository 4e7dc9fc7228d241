"""Stopping and starting parts of the tests' cluster, and the visible effects."""

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.nodes import Node
from tests.cluster.test_cluster import pod


@pytest.fixture
def spare(own_cluster: Cluster) -> Node:
    """A node without components of the cluster."""
    return own_cluster.grow(2)[1]


def restarts(cluster: Cluster, path: str) -> int:
    count: int = cluster.get(path)["status"]["containerStatuses"][0]["restartCount"]
    return count


def process_of(cluster: Cluster, path: str, node: Node) -> str:
    """Return the process id of a container's first process on its node."""
    container = cluster.get(path)["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    rows = [line.split() for line in node.ctr("tasks", "list").splitlines()]
    return next(row[1] for row in rows if row[0] == container and row[2] == "RUNNING")


@pytest.mark.parametrize("part", ["etcd", "kube-apiserver"])
def test_the_control_plane_restarts_with_all_its_objects(own_cluster: Cluster, namespace: str, part: str) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": namespace}}
    own_cluster.apply(config_map | {"data": {"a": "b"}})
    own_cluster.control_plane.stop(part, graceful=False)
    own_cluster.control_plane.resume(part)
    own_cluster.control_plane.wait()
    assert own_cluster.get(f"/api/v1/namespaces/{namespace}/configmaps/kept")["data"] == {"a": "b"}
    own_cluster.apply(pod(namespace, "after", "true"))
    path = f"/api/v1/namespaces/{namespace}/pods/after"
    own_cluster.until(lambda: own_cluster.get(path)["status"]["phase"] == "Succeeded", "a new pod runs")


def test_a_pod_outlives_the_kubelet_and_the_runtime_of_its_node(
    own_cluster: Cluster, namespace: str, spare: Node
) -> None:
    own_cluster.apply(pod(namespace, "steady", "sleep", "600", nodeName=spare.name))
    path = f"/api/v1/namespaces/{namespace}/pods/steady"
    own_cluster.until(lambda: own_cluster.get(path)["status"]["phase"] == "Running", "the pod runs")
    before = process_of(own_cluster, path, spare)
    spare.stop(graceful=False)
    spare.wait(ready=False)
    spare.start()
    spare.wait()
    assert process_of(own_cluster, path, spare) == before
    assert restarts(own_cluster, path) == 0


def test_a_node_whose_power_is_cut_comes_back_and_runs_pods(own_cluster: Cluster, namespace: str, spare: Node) -> None:
    own_cluster.apply(pod(namespace, "lost", "sleep", "600", nodeName=spare.name))
    path = f"/api/v1/namespaces/{namespace}/pods/lost"
    own_cluster.until(lambda: own_cluster.get(path)["status"]["phase"] == "Running", "the pod runs")
    spare.cut()
    spare.wait(ready=False)
    spare.start()
    spare.wait()
    own_cluster.apply(pod(namespace, "next", "true", nodeName=spare.name))
    path = f"/api/v1/namespaces/{namespace}/pods/next"
    own_cluster.until(lambda: own_cluster.get(path)["status"]["phase"] == "Succeeded", "the node runs pods again")


def test_a_container_that_is_killed_directly_is_restarted(own_cluster: Cluster, namespace: str) -> None:
    own_cluster.apply(pod(namespace, "victim", "sleep", "600", nodeName="node-0", restartPolicy="Always"))
    path = f"/api/v1/namespaces/{namespace}/pods/victim"
    own_cluster.until(lambda: own_cluster.get(path)["status"]["phase"] == "Running", "the pod runs")
    own_cluster.node(0).kill(own_cluster.get(path)["status"]["containerStatuses"][0]["containerID"])
    own_cluster.until(lambda: restarts(own_cluster, path) == 1, "the container is restarted")
