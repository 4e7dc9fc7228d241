"""The tests' own cluster: pods run, have limits, resolve each other's names, and operators work."""

import socket
import urllib.request
from typing import Any

import pytest

from tests.cluster.client import Client
from tests.cluster.cluster import Cluster
from tests.cluster.operators import JOBSETS
from tests.cluster.tools import PROBE, probe_image

TRAINING = "trainer.kubeflow.org/v1alpha1"


@pytest.fixture(autouse=True, scope="module")
def image(cluster: Client) -> None:
    cluster.import_image(probe_image())


def pod(namespace: str, name: str, *command: str, memory: str = "64Mi", **spec: Any) -> dict[str, Any]:
    """Return a pod that runs a command of the tests' image to its end."""
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


def replicas(name: str, count: int, *command: str, **spec: Any) -> dict[str, Any]:
    """Return a group of a JobSet's replicas that run a command."""
    template = pod("", name, *command, **spec)["spec"]
    job = {"completions": count, "parallelism": count, "completionMode": "Indexed", "backoffLimit": 0}
    return {"name": name, "replicas": 1, "template": {"spec": job | {"template": {"spec": template}}}}


def jobset(namespace: str, name: str, *groups: Any, annotations: Any = None, **spec: Any) -> dict[str, Any]:
    """Return a JobSet whose replicas have DNS names before they are ready."""
    network = {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}}
    spec = {"network": network, "replicatedJobs": list(groups)} | spec
    return {"apiVersion": JOBSETS, "kind": "JobSet", "metadata": metadata, "spec": spec}


def wait_for_condition(cluster: Client, path: str, *kinds: str) -> str:
    """Wait until an object has one of these conditions, and return it."""
    types: list[str] = []

    def has_condition() -> bool:
        conditions = (cluster.get(path) or {}).get("status", {}).get("conditions", [])
        types[:] = [
            condition["type"]
            for condition in conditions
            if condition["type"] in kinds and condition["status"] == "True"
        ]
        return bool(types)

    cluster.until(has_condition, f"{path} has the condition {' or '.join(kinds)}")
    return types[0]


def terminated_state(cluster: Client, namespace: str, name: str) -> dict[str, Any]:
    """Wait for a pod's end and return its container's terminated state."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    cluster.until(lambda: cluster.get(path)["status"]["phase"] in ("Succeeded", "Failed"), f"{name} ends")
    state: dict[str, Any] = cluster.get(path)["status"]["containerStatuses"][0]["state"]["terminated"]
    return state


def test_a_pod_runs_and_its_logs_are_read(cluster: Client, namespace: str) -> None:
    cluster.apply(pod(namespace, "speaker", "echo", "hello from a pod"))
    assert terminated_state(cluster, namespace, "speaker")["exitCode"] == 0
    assert cluster.kubectl("logs", "-n", namespace, "speaker") == "hello from a pod\n"


def test_a_pod_beyond_its_memory_limit_is_killed(cluster: Client, namespace: str) -> None:
    cluster.apply(pod(namespace, "greedy", "dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1", memory="32Mi"))
    end = terminated_state(cluster, namespace, "greedy")
    assert (end["exitCode"], end["reason"]) == (137, "OOMKilled")


def test_a_service_is_resolved_by_its_name(cluster: Client, namespace: str) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "greeter", "namespace": namespace},
        "spec": {"selector": {"app": "greeter"}, "ports": [{"port": 80, "targetPort": 8000}]},
    }
    cluster.apply(service, pod(namespace, "greeter", "probe", "serve", ":8000"))
    cluster.apply(pod(namespace, "guest", "probe", "get", f"http://greeter.{namespace}.svc.cluster.local/"))
    assert terminated_state(cluster, namespace, "guest")["exitCode"] == 0
    assert "200 hello from greeter" in cluster.kubectl("logs", "-n", namespace, "guest")


def test_pods_reach_processes_of_this_machine_and_the_machine_reaches_services(
    own_cluster: Cluster, namespace: str
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listening:
        url = f"http://{own_cluster.host_address}:{listening.getsockname()[1]}/"
        own_cluster.apply(pod(namespace, "caller", "probe", "get", url), pod(namespace, "web", "probe", "serve", ":80"))
        listening.settimeout(100)
        connection, caller = listening.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
    assert terminated_state(own_cluster, namespace, "caller")["exitCode"] == 0
    pod_ip = own_cluster.get(f"/api/v1/namespaces/{namespace}/pods/caller")["status"]["podIP"]
    assert caller[0] == pod_ip, "the source address is the pod's own"
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    metadata = {"name": "web", "namespace": namespace}
    own_cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    address = own_cluster.get(f"/api/v1/namespaces/{namespace}/services/web")["spec"]["clusterIP"]

    def answers() -> bool:
        try:
            return b"hello from web" in urllib.request.urlopen(f"http://{address}/", timeout=5).read()
        except OSError:
            return False

    own_cluster.until(answers, "the Service answers on this machine")


def test_the_replicas_of_a_jobset_find_each_other_by_name(cluster: Client, namespace: str) -> None:
    cluster.jobset()
    names = " ".join(f"demo-server-0-{index}.demo" for index in range(2))
    script = f"for name in {names}; do probe resolve $name && probe get http://$name:8000/ || exit 1; done"
    cluster.apply(
        jobset(
            namespace,
            "demo",
            replicas("server", 2, "probe", "serve", ":8000"),
            replicas("worker", 2, "sh", "-c", script),
            successPolicy={"operator": "All", "targetReplicatedJobs": ["worker"]},
        )
    )
    path = f"/apis/{JOBSETS}/namespaces/{namespace}/jobsets/demo"
    assert wait_for_condition(cluster, path, "Completed", "Failed") == "Completed"
    worker = "jobset.sigs.k8s.io/replicatedjob-name=worker"
    output = cluster.kubectl("logs", "-n", namespace, "-l", worker, "--tail=-1")
    for index in range(2):
        assert output.count(f"demo-server-0-{index}.demo => [") == 2
        assert output.count(f"200 hello from demo-server-0-{index} to") == 2


def test_an_invalid_jobset_is_refused_by_its_webhook(cluster: Client, namespace: str) -> None:
    cluster.jobset()
    with pytest.raises(RuntimeError, match="admission webhook"):
        cluster.apply(jobset(namespace, "x" * 80, replicas("worker", 1, "true")))


def test_a_stopped_jobset_operator_is_restarted_and_awaited(own_cluster: Cluster, namespace: str) -> None:
    own_cluster.jobset()
    manager = ("-n", "jobset-system", "deployment/jobset-controller-manager")
    own_cluster.kubectl("scale", *manager, "--replicas=0")
    path = "/apis/discovery.k8s.io/v1/namespaces/jobset-system/endpointslices"
    own_cluster.until(
        lambda: not any(item["endpoints"] for item in own_cluster.get(path)["items"]), "its Service has no endpoints"
    )
    own_cluster.kubectl("scale", *manager, "--replicas=1")
    own_cluster.jobset()
    own_cluster.apply(jobset(namespace, "after", replicas("worker", 1, "true")))


def test_a_train_job_runs_on_its_runtime(cluster: Client, namespace: str) -> None:
    cluster.trainer()
    node = replicas("node", 1, "true")
    container = node["template"]["spec"]["template"]["spec"]["containers"][0]
    container |= {"name": "node", "command": ["sh", "-c", "echo rank $PET_NODE_RANK of $PET_NNODES"]}
    node["template"]["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    for field in ("completions", "parallelism", "completionMode"):
        del node["template"]["spec"][field]  # set by Trainer
    metadata = {"name": "plain", "namespace": namespace, "labels": {"trainer.kubeflow.org/framework": "torch"}}
    policy = {"numNodes": 1, "torch": {}}
    runtime = {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": [node]}}}
    spec = {"runtimeRef": {"kind": "TrainingRuntime", "name": "plain"}, "trainer": {"numNodes": 2}}
    cluster.apply({"apiVersion": TRAINING, "kind": "TrainingRuntime", "metadata": metadata, "spec": runtime})
    metadata = {"name": "course", "namespace": namespace}
    cluster.apply({"apiVersion": TRAINING, "kind": "TrainJob", "metadata": metadata, "spec": spec})
    path = f"/apis/{TRAINING}/namespaces/{namespace}/trainjobs/course"
    assert wait_for_condition(cluster, path, "Complete", "Failed") == "Complete"
    output = cluster.kubectl("logs", "-n", namespace, "-l", "jobset.sigs.k8s.io/jobset-name=course", "--tail=-1")
    assert sorted(output.split("\n")) == ["", "rank 0 of 2", "rank 1 of 2"]


def test_a_jobset_has_a_zone_to_itself(own_cluster: Cluster, namespace: str) -> None:
    own_cluster.jobset()
    own_cluster.grow(3)
    zone = "topology.kubernetes.io/zone"
    groups = [replicas(name, 2, "sleep", "600") for name in ("one", "two", "three")]
    annotations = {"alpha.jobset.sigs.k8s.io/exclusive-topology": zone}
    own_cluster.apply(jobset(namespace, "apart", *groups, annotations=annotations))
    path = f"/api/v1/namespaces/{namespace}/pods"

    def placed() -> dict[str, set[str]]:
        nodes_by_job: dict[str, set[str]] = {}
        for item in own_cluster.get(path)["items"]:
            if item["status"]["phase"] in ("Running", "Succeeded"):
                job = item["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"]
                nodes_by_job.setdefault(job, set()).add(item["spec"]["nodeName"])
        return nodes_by_job

    own_cluster.until(lambda: len(placed()) == 3, "all three groups run")
    assert all(len(nodes) == 1 for nodes in placed().values()), placed()
    assert set.union(*placed().values()) == {"node-0", "node-1", "node-2"}


def test_a_job_of_a_hundred_pods_runs_on_simulated_nodes(own_cluster: Cluster, namespace: str) -> None:
    own_cluster.kwok(100)
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"type": "kwok"},
        "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
    }
    job = {"completions": 100, "parallelism": 100, "completionMode": "Indexed", "template": {"spec": spec}}
    metadata = {"name": "wide", "namespace": namespace}
    own_cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job})
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/wide"
    assert wait_for_condition(own_cluster, path, "Complete", "Failed") == "Complete"
    own_cluster.kubectl("delete", "job", "-n", namespace, "wide")
    own_cluster.remove_kwok()
