"""That the cluster of these tests is one: its pods run, are limited, find each other, and its operators work."""

from typing import Any

from tests.cluster.cluster import Cluster
from tests.cluster.tools import PROBE


def pod(namespace: str, name: str, *command: str, memory: str = "64Mi", **spec: Any) -> dict[str, Any]:
    """Return a pod that runs a command of the tests' own image to its end."""
    container = {
        "name": "main",
        "image": PROBE,
        "imagePullPolicy": "Never",
        "command": list(command),
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": memory}},
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]} | spec
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def ended(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    """Wait for a pod's end and return how its container ended."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    cluster.until(lambda: cluster.get(path)["status"]["phase"] in ("Succeeded", "Failed"), f"{name} ends")
    found: dict[str, Any] = cluster.get(path)["status"]["containerStatuses"][0]["state"]["terminated"]
    return found


def test_a_pod_runs_and_its_logs_are_read(cluster: Cluster, namespace: str) -> None:
    cluster.apply(pod(namespace, "speaker", "echo", "hello from a pod"))
    assert ended(cluster, namespace, "speaker")["exitCode"] == 0
    assert cluster.kubectl("logs", "-n", namespace, "speaker") == "hello from a pod\n"


def test_a_pod_that_takes_too_much_memory_is_killed_for_it(cluster: Cluster, namespace: str) -> None:
    cluster.apply(pod(namespace, "glutton", "dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1", memory="32Mi"))
    end = ended(cluster, namespace, "glutton")
    assert (end["exitCode"], end["reason"]) == (137, "OOMKilled")


def test_a_service_is_found_by_its_name_from_pods_and_from_outside(cluster: Cluster, namespace: str) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "greeter", "namespace": namespace},
        "spec": {"selector": {"app": "greeter"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    cluster.apply(service, pod(namespace, "greeter", "probe", "serve", ":8000"))
    cluster.apply(pod(namespace, "guest", "probe", "get", f"http://greeter.{namespace}.svc.cluster.local/"))
    assert ended(cluster, namespace, "guest")["exitCode"] == 0
    assert "200 hello from greeter" in cluster.kubectl("logs", "-n", namespace, "guest")
