"""Requests of the warm pool, counted at an API server that answers as a cluster does and refuses on demand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.domain.scheduling.launches import Launch, WarmLaunch
from core.domain.usage.granted_resources import GrantedResources, WarmGrant
from tests.contracts.test_executor import launch_of
from tests.contracts.test_kubernetes_api_queries import Cluster, jobset
from tests.contracts.test_kubernetes_api_queries import cluster as cluster  # a fixture
from workers.executors.base import ActiveLaunch, KeepsWarmLaunches, Missed
from workers.executors.kubernetes import warm_pool
from workers.executors.kubernetes.executor import KubernetesExecutor
from workers.executors.kubernetes.metrics import ClusterMetrics
from workers.executors.kubernetes.options import KubernetesOptions, parse

KIND = {"project": "default", "runtime": "python", "dataset": "noop"}


def options(pods: int = 1) -> KubernetesOptions:
    return parse({"namespace": "ns", "runner_api_url": "http://runner_api:1", "warm": [KIND | {"pods": pods}]})


@pytest.fixture
def executor(cluster: Cluster) -> KubernetesExecutor:
    return kubernetes_executor(cluster, options())


def kubernetes_executor(cluster: Cluster, options: KubernetesOptions) -> KubernetesExecutor:
    executor = KubernetesExecutor("west", cluster.client, options, ClusterMetrics("west"), url="http://runner_api:1")
    assert isinstance(executor, KeepsWarmLaunches)
    return executor


def warm_pods(executor: KubernetesExecutor, *ids: str, ready: int = 1) -> list[dict[str, Any]]:
    """Return the warm pods of the cluster, created from the executor's requests."""
    targets = warm_pool.warm_targets(executor.options, executor.served(), "http://runner_api:1")
    (digest,) = targets
    jobsets = [jobset(id, ready=ready) for id in ids]
    for item in jobsets:
        item["metadata"]["labels"]["windtunnel/warm"] = digest
        item["metadata"]["annotations"] = {"windtunnel/token-hash": "h"}
    return jobsets


def requests(cluster: Cluster) -> list[tuple[str, str, Any]]:
    """Return the requests since the last call: verb, last segment of the path, and body."""
    calls = [
        (verb, path.partition("?")[0].rpartition("/")[2], json.loads(body) if body else None)
        for verb, path, _, body in cluster.server.requests
        if not path.startswith("/apis?") and path != "/apis"
    ]
    cluster.server.requests.clear()
    return calls


def take_warm_launch(executor: KubernetesExecutor) -> Launch:
    """Take a warm pod, as the dispatcher does."""
    launch = launch_of("http://runner_api:1")
    warm = executor.take_warm_launch(launch)
    assert warm == WarmLaunch("warm1", "h")
    return replace(launch, id=warm.id, token="", workers=1)


def test_three_requests_create_a_warm_pod_and_taking_it_needs_none(
    cluster: Cluster, executor: KubernetesExecutor
) -> None:
    assert executor.maintain_warm_pool({}) is False
    calls = requests(cluster)
    assert [name for verb, name, _ in calls if verb == "POST"] == ["networkpolicies", "secrets", "jobsets"]
    metadata = calls[-1][2]["metadata"]
    assert metadata["labels"]["windtunnel/simulation"] == "" and metadata["labels"]["windtunnel/warm"]
    assert len(metadata["annotations"]["windtunnel/token-hash"]) == 64
    assert "token" not in json.dumps(metadata).replace("token-hash", "")
    cluster.lists["jobsets"] = warm_pods(executor, "warm1")
    requests(cluster)
    assert executor.maintain_warm_pool({}) is True and "POST" not in [verb for verb, _, _ in requests(cluster)]
    take_warm_launch(executor)
    assert requests(cluster) == []


def test_taking_a_warm_pod_is_one_request_that_names_its_launch(cluster: Cluster, executor: KubernetesExecutor) -> None:
    cluster.lists["jobsets"] = warm_pods(executor, "warm1")
    executor.maintain_warm_pool({})
    launch = take_warm_launch(executor)
    requests(cluster)
    executor.submit(launch)
    ((verb, name, body),) = requests(cluster)
    assert (verb, name) == ("PATCH", "wt-warm1")
    labels = {"windtunnel/warm": None, "windtunnel/simulation": launch.simulation_id, "windtunnel/attempt": "1"}
    assert body == {"metadata": {"labels": labels, "annotations": {"windtunnel/token-hash": None}}}


def test_warm_pods_have_what_their_project_is_granted_until_one_is_taken(
    cluster: Cluster, executor: KubernetesExecutor
) -> None:
    assert executor.warm_grants() == []
    cluster.lists["jobsets"] = warm_pods(executor, "warm1") + warm_pods(executor, "warm2", ready=0)
    queued, taken, of_no_target = warm_pods(executor, "queued", "taken", "other")
    queued["spec"]["suspend"] = True
    del taken["metadata"]["labels"]["windtunnel/warm"]
    of_no_target["metadata"]["labels"]["windtunnel/warm"] = "0" * 16
    cluster.lists["jobsets"] += [queued, taken, of_no_target]
    granted = GrantedResources(workers=1, millicores=1000, mebibytes=2048)
    requests(cluster)
    assert executor.warm_grants() == [WarmGrant("warm1", "default", granted), WarmGrant("warm2", "default", granted)]
    assert {verb for verb, _, _ in requests(cluster)} == {"GET"}


def test_a_deleted_warm_pod_is_missed(cluster: Cluster, executor: KubernetesExecutor) -> None:
    cluster.lists["jobsets"] = warm_pods(executor, "warm1")
    executor.maintain_warm_pool({})
    launch = take_warm_launch(executor)
    cluster.refused_statuses["wt-warm1"] = 404
    with pytest.raises(Missed):
        executor.submit(launch)


def test_labels_of_a_taken_warm_pod_are_written_later_when_the_api_server_is_unavailable(
    cluster: Cluster, executor: KubernetesExecutor
) -> None:
    cluster.lists["jobsets"] = warm_pods(executor, "warm1")
    executor.maintain_warm_pool({})
    launch = take_warm_launch(executor)
    cluster.refused_statuses["wt-warm1"] = 503
    executor.submit(launch)  # succeeds: its runners are already working
    cluster.refused_statuses.clear()
    requests(cluster)
    executor.maintain_warm_pool({"warm1": ActiveLaunch(launch.simulation_id, 1, 1)})
    assert [name for verb, name, _ in requests(cluster) if verb == "PATCH"] == ["wt-warm1"]


def test_a_warm_pod_that_was_taken_but_not_used_is_deleted(cluster: Cluster, executor: KubernetesExecutor) -> None:
    cluster.lists["jobsets"] = warm_pods(executor, "warm1")
    executor.maintain_warm_pool({})
    take_warm_launch(executor)
    requests(cluster)
    executor.maintain_warm_pool({})
    assert ("DELETE", "wt-warm1") in [request[:2] for request in requests(cluster)]


def test_a_complete_warm_pod_is_not_an_orphan_and_an_incomplete_one_is(
    cluster: Cluster, executor: KubernetesExecutor
) -> None:
    cluster.lists["jobsets"] = warm_pods(executor, "warm1")
    cluster.lists["networkpolicies"] = [jobset("warm1", ready=0), jobset("warm2", ready=0)]
    assert executor.orphans([]) == ["warm2"]


def test_warm_pods_are_created_a_few_at_a_time(cluster: Cluster, tmp_path: Path) -> None:
    executor = kubernetes_executor(cluster, options(pods=20))
    assert executor.maintain_warm_pool({}) is False
    assert [name for verb, name, _ in requests(cluster) if verb == "POST"].count("jobsets") == 5


def test_a_refused_warm_pod_is_requested_once_and_its_objects_are_deleted(cluster: Cluster, tmp_path: Path) -> None:
    executor = kubernetes_executor(cluster, options(pods=3))
    executor.served()
    cluster.refused_statuses["secrets"] = 403
    cluster.server.requests.clear()
    assert executor.maintain_warm_pool({}) is False
    verbs = [request[:2] for request in requests(cluster)]
    assert verbs.count(("POST", "secrets")) == 1 and [verb for verb, _ in verbs].count("DELETE") >= 1


def test_all_warm_pods_are_deleted_when_none_is_configured(cluster: Cluster, executor: KubernetesExecutor) -> None:
    cluster.lists["jobsets"] = warm_pods(executor, "warm1", "warm2", ready=0)
    requests(cluster)
    idle = kubernetes_executor(cluster, parse({"namespace": "ns"}))
    assert idle.maintain_warm_pool({}) is True
    deleted = {name for verb, name, _ in requests(cluster) if verb == "DELETE"}
    assert deleted == {"wt-warm1", "wt-warm2"} and idle.take_warm_launch(launch_of("http://runner_api:1")) is None
