"""Requests of the Kubernetes executor, counted at an API server that answers as a cluster does."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.errors import ClusterFull, PlatformError
from core.domain.scheduling.launches import Phase
from kube.access import Kubeconfig
from kube.client import KubernetesClient
from tests.contracts.kubernetes_server import Answer, ScriptedServer, chunked_response, close_connection, response
from tests.contracts.test_executor import launch_of
from workers.executors.kubernetes.api_queries import ApiQueries
from workers.executors.kubernetes.executor import KubernetesExecutor
from workers.executors.kubernetes.metrics import ClusterMetrics
from workers.executors.kubernetes.options import parse
from workers.executors.kubernetes.watch import watch_launches

VERSIONS = {"jobset.x-k8s.io": "v1alpha2", "trainer.kubeflow.org": "v1alpha1", "kueue.x-k8s.io": "v1beta1"}
VERSIONS |= {"kubeflow.org": "v2beta1"}
GROUPS = [
    {"name": name, "versions": [{"groupVersion": f"{name}/{version}"}], "preferredVersion": {"version": version}}
    for name, version in VERSIONS.items()
]


class Cluster:
    """API server with configurable lists, by plural name, which records the requested lists."""

    def __init__(self, folder: Path) -> None:
        self.lists: dict[str, list[Any]] = {}
        self.refused_statuses: dict[str, int] = {}
        self.groups = GROUPS
        #: Answers to watches, in order, and the paths of the watches that were requested.
        self.watch_answers: list[Answer] = []
        self.watch_paths: list[str] = []
        self.server = ScriptedServer()
        self.server.answers = [self.answer]
        cluster = {"name": "c", "cluster": {"server": self.server.url}}
        context = {"name": "x", "context": {"cluster": "c"}}
        (folder / "kubeconfig").write_text(
            yaml.safe_dump({"current-context": "x", "contexts": [context], "clusters": [cluster]})
        )
        self.client = KubernetesClient(Kubeconfig(folder / "kubeconfig"), time_out=10)
        self.executor = KubernetesExecutor("west", self.client, parse({}), ClusterMetrics("west"))

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        plural = path.rpartition("/")[2]
        if "watch=true" in request.path:
            self.watch_paths.append(request.path)
            (self.watch_answers.pop(0) if self.watch_answers else chunked_response(changed("ADDED", "1")))(request)
        elif path == "/apis":
            response(200, {"groups": self.groups})(request)
        elif status := self.refused_statuses.get(plural):
            response(status, {"message": f"{plural} is forbidden: cannot", "reason": "Forbidden"})(request)
        elif request.command == "POST":
            response(201, {"metadata": {"uid": "u"}})(request)
        else:
            response(200, {"items": self.lists.get(plural, [])})(request)

    def requested_lists(self) -> list[str]:
        """Return the plural names requested since the last call, without API discovery."""
        paths = [path.partition("?")[0] for _, path, _, _ in self.server.requests]
        self.server.requests.clear()
        return [path.rpartition("/")[2] for path in paths if path != "/apis"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    server = Cluster(tmp_path)
    yield server
    server.client.close()
    server.server.close()


def jobset(id: str, *, ready: int, **spec: Any) -> dict[str, Any]:
    metadata = {"name": f"wt-{id}", "namespace": "ns", "labels": {"windtunnel/launch": id}}
    status = {"replicatedJobsStatus": [{"name": "w", "ready": ready}]}
    return {"metadata": metadata, "spec": {"replicatedJobs": [{"name": "w", "replicas": 1}], **spec}, "status": status}


def test_running_launches_cost_one_list_request_in_total(cluster: Cluster) -> None:
    cluster.lists["jobsets"] = [jobset(f"a{number}", ready=1) for number in range(200)]
    statuses = cluster.executor.observe([f"a{number}" for number in range(200)])
    assert {status.phase for status in statuses.values()} == {Phase.RUNNING} and len(statuses) == 200
    assert cluster.requested_lists() == ["jobsets"]


def test_starting_launches_cost_one_list_of_pods_and_one_of_warnings(cluster: Cluster) -> None:
    cluster.lists["jobsets"] = [jobset(f"a{number}", ready=0) for number in range(200)]
    cluster.executor.observe([f"a{number}" for number in range(200)])
    paths = [path for _, path, _, _ in cluster.server.requests if "/pods?" in path]
    assert len(paths) == 1 and paths[0].count("%2C") == 50
    assert sorted(cluster.requested_lists()) == ["events", "jobsets", "pods"]
    cluster.executor.observe(["a1"])
    assert set(cluster.requested_lists()) <= {"jobsets"}, "pods are not read again at once"


def test_every_list_selects_the_objects_of_this_installation(cluster: Cluster) -> None:
    cluster.lists["jobsets"] = [jobset("a", ready=0)]
    cluster.executor.observe(["a"])
    cluster.executor.orphans([])
    cluster.executor.cancel("b")
    paths = [path for verb, path, _, _ in cluster.server.requests if verb == "GET" and "labelSelector" in path]
    assert {path.partition("?")[0].rpartition("/")[2] for path in paths} >= {"jobsets", "pods", "networkpolicies"}
    assert [path for path in paths if "windtunnel/installation%3Dwindtunnel" not in path] == []


def test_all_pods_of_a_failed_mpijob_are_read(cluster: Cluster) -> None:
    """With one page of pods only, a failed pod could be missed and its failure be attributed to the cluster."""

    def page(request: BaseHTTPRequestHandler) -> None:
        if "/pods?" not in request.path:
            return cluster.answer(request)
        first = "continue=next" not in request.path
        pods = [pod("lead")] * first + [pod("replica")] * 500
        response(200, {"items": pods[:500], "metadata": {"continue": "next" if first else ""}})(request)

    def pod(part: str) -> dict[str, Any]:
        labels = {"windtunnel/launch": "a", "windtunnel/part": part}
        ended = {"name": "main", "state": {"terminated": {"exitCode": 3}}}
        status = {"phase": "Failed", "containerStatuses": [ended]} if part == "lead" else {"phase": "Running"}
        return {"metadata": {"labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": status}

    cluster.server.answers = [page]
    job = jobset("a", ready=0, mpiReplicaSpecs={"Worker": {"replicas": 999}})
    cluster.lists["mpijobs"] = [{**job, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}]
    assert cluster.executor.observe(["a"])["a"].exit == 3


def test_a_missing_launch_is_searched_among_the_other_kinds_and_reported_as_vanished(cluster: Cluster) -> None:
    assert cluster.executor.observe(["missing"]) == {}
    assert cluster.requested_lists() == ["jobsets", "jobs", "trainjobs", "mpijobs"]


def test_an_object_created_by_an_owner_is_not_a_launch(cluster: Cluster) -> None:
    child = jobset("a", ready=1)
    child["metadata"]["ownerReferences"] = [{"kind": "TrainJob", "name": "wt-a"}]
    cluster.lists["jobsets"] = [child]
    metadata = {"name": "wt-a", "namespace": "ns", "labels": {"windtunnel/launch": "a"}}
    status = {"conditions": [{"type": "Complete", "status": "True"}]}
    cluster.lists["trainjobs"] = [{"metadata": metadata, "status": status}]
    assert cluster.executor.observe(["a"])["a"].phase is Phase.ENDED


def test_a_launch_queued_by_kueue_has_the_message_of_its_workload(cluster: Cluster) -> None:
    cluster.lists["jobsets"] = [jobset("a", ready=0, suspend=True)]
    reference = {"kind": "JobSet", "name": "wt-a"}
    condition = {"type": "QuotaReserved", "status": "False", "message": "no room in queue gold"}
    metadata = {"name": "jobset-wt-a-1", "namespace": "ns", "ownerReferences": [reference]}
    cluster.lists["workloads"] = [{"metadata": metadata, "status": {"conditions": [condition]}}]
    observed = cluster.executor.observe(["a"])["a"]
    assert observed.phase is Phase.SUSPENDED and "no room in queue gold" in observed.notes[0].message


def test_a_forbidden_list_is_a_permission_error_that_names_the_list(cluster: Cluster) -> None:
    cluster.refused_statuses["jobsets"] = 403
    with pytest.raises(PermissionError, match="may not list jobsets"):
        cluster.executor.observe(["a"])


@pytest.mark.parametrize("status", [302, 403, 404])
def test_a_failed_api_discovery_is_a_permission_error_that_names_the_role(cluster: Cluster, status: int) -> None:
    cluster.server.answers = [
        response(status, {"message": 'forbidden: cannot get path "/apis"', "reason": "Forbidden"})
    ]
    calls = (
        lambda: cluster.executor.observe(["a"]),
        lambda: cluster.executor.orphans([]),
        lambda: cluster.executor.submit(launch_of("http://10.0.0.1:1")),
    )
    for call in calls:
        with pytest.raises(PermissionError, match=f"API discovery failed .{status}.*system:discovery"):
            call()


def test_a_watch_started_during_an_outage_wakes_the_dispatcher_after_it(cluster: Cluster) -> None:
    cluster.server.answers = [close_connection]
    woken, stop = threading.Event(), threading.Event()
    options = cluster.executor.options
    watched = (cluster.client, options, ApiQueries(cluster.client, options), woken.set, stop)
    watching = threading.Thread(target=watch_launches, args=watched, kwargs={"pause": 0.01}, daemon=True)
    watching.start()
    try:
        assert not woken.wait(0.3)
        cluster.server.answers = [cluster.answer]
        assert woken.wait(20)
    finally:
        stop.set()
        watching.join(20)


def changed(type: str, version: str) -> bytes:
    return json.dumps({"type": type, "object": {"metadata": {"resourceVersion": version}}}).encode() + b"\n"


def test_a_watch_resumes_at_the_last_resource_version_until_it_expires(cluster: Cluster) -> None:
    """Otherwise each watch would begin with an event, and cause a pass of the dispatcher, for every existing object."""
    stop, third_watch = threading.Event(), threading.Event()
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    cluster.watch_answers = [
        chunked_response(changed("ADDED", "5"), changed("BOOKMARK", "9")),
        chunked_response(json.dumps({"type": "ERROR", "object": expired}).encode() + b"\n"),
        chunked_response(changed("MODIFIED", "11")),
    ]
    wakes: list[int] = []  # number of watches requested at each wake-up

    def wake() -> None:
        wakes.append(len(cluster.watch_paths))
        if len(cluster.watch_paths) >= 3:
            third_watch.set()

    options = cluster.executor.options
    watched = (cluster.client, options, ApiQueries(cluster.client, options), wake, stop)
    watching = threading.Thread(target=watch_launches, args=watched, kwargs={"pause": 0.01}, daemon=True)
    watching.start()
    try:
        assert third_watch.wait(20)
    finally:
        stop.set()
        watching.join(20)
    assert ["resourceVersion=9" in path for path in cluster.watch_paths[:3]] == [False, True, False], (
        cluster.watch_paths
    )
    assert wakes[:2] == [1, 3], "a bookmark and an expiry do not wake the dispatcher"


def test_a_conflict_on_a_resource_quota_does_not_refuse_the_launch(cluster: Cluster) -> None:
    message = 'Operation cannot be fulfilled on resourcequotas "team": the object has been modified; please try again'
    conflict = response(409, {"message": message, "reason": "Conflict"})
    cluster.server.answers = [cluster.answer, cluster.answer, conflict, cluster.answer]  # to the request for the secret
    launch = launch_of("http://10.0.0.1:1")
    with pytest.raises(ClusterFull, match=r"tried again.*resourcequotas"):
        cluster.executor.submit(launch)
    cluster.server.requests.clear()
    cluster.executor.submit(launch)
    assert [path.rpartition("/")[2] for verb, path, _, _ in cluster.server.requests if verb == "POST"][-1] == "jobsets"


def test_the_network_policy_of_a_launch_is_created_first_and_owns_its_objects(cluster: Cluster) -> None:
    cluster.executor.submit(launch_of("http://10.0.0.1:1"))
    objects = [json.loads(body) for verb, _, _, body in cluster.server.requests if verb == "POST"]
    assert [item["kind"] for item in objects] == ["NetworkPolicy", "Secret", "JobSet"]
    assert objects[0]["metadata"]["ownerReferences"] == []
    owners = [item["metadata"]["ownerReferences"][0] for item in objects[1:]]
    assert {(item["kind"], item["name"], item["uid"]) for item in owners} == {
        ("NetworkPolicy", objects[0]["metadata"]["name"], "u")
    }
    assert {item["metadata"]["namespace"] for item in objects} == {"windtunnel-default"}
    statuses = cluster.executor.observe([objects[0]["metadata"]["labels"]["windtunnel/launch"]])
    assert [item.phase for item in statuses.values()] == [Phase.STARTING], "the API server's watch cache may lag behind"


def test_a_refused_launch_leaves_no_object_that_can_be_deleted(cluster: Cluster) -> None:
    cluster.refused_statuses["jobsets"] = 422
    with pytest.raises(PlatformError):
        cluster.executor.submit(launch_of("http://10.0.0.1:1"))
    deleted = [path.split("/")[-2] for verb, path, _, _ in cluster.server.requests if verb == "DELETE"]
    assert deleted == ["jobsets", "secrets", "networkpolicies"]


@pytest.mark.parametrize("status", [404, 405])  # 405: while the CRD is being deleted
def test_a_cluster_that_no_longer_serves_jobset_is_discovered_again_and_gets_a_job(
    cluster: Cluster, status: int
) -> None:
    cluster.executor.observe([])  # caches that JobSets are served
    cluster.refused_statuses["jobsets"] = status
    cluster.groups = [group for group in GROUPS if group["name"] != "jobset.x-k8s.io"]
    with pytest.raises(ConnectionError, match="does not serve jobsets any more"):
        cluster.executor.submit(launch_of("http://10.0.0.1:1"))
    cluster.server.requests.clear()
    cluster.executor.submit(launch_of("http://10.0.0.1:1"))
    kinds = [json.loads(body)["kind"] for verb, _, _, body in cluster.server.requests if verb == "POST"]
    assert kinds == ["NetworkPolicy", "Secret", "Job"]
