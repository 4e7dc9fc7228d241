"""Warm pods on a real cluster: used, labelled, replaced, and deleted when the option is removed."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.domain.scheduling.launches import Launch, Phase, WarmLaunch
from tests.cluster.cluster import Cluster
from tests.cluster.test_kubernetes_executor import OpenExecutor, remaining_objects, serve_runner_api
from tests.cluster.test_kubernetes_executor import images as images  # fixtures, found by their names
from tests.cluster.test_kubernetes_executor import open_executor as open_executor
from tests.cluster.test_kubernetes_executor import owner as owner
from tests.contracts.test_executor import launch_of
from tests.system.runner_api import SIMULATION, RunnerApi
from tests.waiting import until
from workers.executors.base import ActiveLaunch, Missed
from workers.executors.kubernetes.executor import KubernetesExecutor
from workers.executors.kubernetes.objects import ResourceKind

NOOP = {"project": "default", "runtime": "python", "dataset": "noop"}


@pytest.fixture
def runner_api(own_cluster: Cluster, tmp_path: Path) -> Iterator[RunnerApi]:
    """A simulation without a launch."""
    api = serve_runner_api(own_cluster, tmp_path, launched=False)
    yield api
    api.close()


@pytest.fixture
def owners(own_cluster: Cluster, owner: ResourceKind, namespace: str) -> Callable[[], dict[str, dict[str, str]]]:
    """Read the labels of the launches' owners, by launch."""

    def labels_by_launch() -> dict[str, dict[str, str]]:
        items = json.loads(own_cluster.kubectl("get", owner.plural, "-n", namespace, "-o", "json"))["items"]
        return {item["metadata"]["labels"]["windtunnel/launch"]: item["metadata"]["labels"] for item in items}

    return labels_by_launch


def fill_warm_pool(executor: KubernetesExecutor, active: dict[str, ActiveLaunch] | None = None) -> None:
    """Maintain the warm pool until it is full."""
    until(lambda: executor.maintain_warm_pool(active or {}), 120)


def take_launch(executor: KubernetesExecutor, runner_api: RunnerApi) -> tuple[Launch, WarmLaunch]:
    """Take a warm launch and insert the launch with its id, like a dispatcher."""
    launch = launch_of(runner_api.url, simulation_id=SIMULATION, workers=1)
    warm = executor.take_warm_launch(launch)
    assert warm is not None
    runner_api.launch(id=warm.id, token_hash=warm.token_hash)
    return replace(launch, id=warm.id, token=""), warm


def test_a_warm_pod_is_taken_and_replaced_and_leaves_no_objects(
    own_cluster: Cluster, open_executor: OpenExecutor, runner_api: RunnerApi, owners: Any, namespace: str
) -> None:
    executor = open_executor(warm=[NOOP], runner_api_url=runner_api.url)
    assert executor.maintain_warm_pool({}) is False and executor.orphans([]) == []
    assert executor.take_warm_launch(launch_of(runner_api.url)) is None, "the warm pod is not ready yet"
    fill_warm_pool(executor)
    until(lambda: "wait" in runner_api.requests)
    (first,) = owners()

    launch, warm = take_launch(executor, runner_api)
    assert warm.id == first and executor.take_warm_launch(launch_of(runner_api.url)) is None
    began = time.monotonic()
    until(lambda: "report" in runner_api.requests)
    print(f"first results {time.monotonic() - began:.3f} s after the launch's row was written")
    executor.submit(launch)
    executor.submit(launch)
    assert executor.observe([first])[first].phase is Phase.RUNNING
    labels = owners()[first]
    assert (labels["windtunnel/simulation"], labels["windtunnel/attempt"]) == (SIMULATION, "1")
    assert "windtunnel/warm" not in labels

    fill_warm_pool(executor, {first: ActiveLaunch(SIMULATION, 1, 1)})
    assert len(owners()) == 2 and executor.orphans([first]) == [] and executor.orphans([]) == [first]
    runner_api.cancel()
    until(lambda: executor.observe([first])[first].phase is Phase.ENDED)
    executor.cancel(first)
    assert open_executor(runner_api_url=runner_api.url).maintain_warm_pool({}) is True
    own_cluster.until(lambda: not remaining_objects(own_cluster, namespace), "no warm pod exists without the option")


def test_a_dispatcher_killed_before_labelling_loses_neither_launch_nor_workers(
    own_cluster: Cluster, open_executor: OpenExecutor, runner_api: RunnerApi, owners: Any, namespace: str
) -> None:
    executor = open_executor(warm=[NOOP], runner_api_url=runner_api.url)
    fill_warm_pool(executor)
    launch, _ = take_launch(executor, runner_api)  # and the dispatcher is killed
    until(lambda: "report" in runner_api.requests)

    successor = open_executor(warm=[NOOP], runner_api_url=runner_api.url)
    active = {launch.id: ActiveLaunch(SIMULATION, 1, 2)}
    assert successor.orphans(list(active)) == []
    fill_warm_pool(successor, active)
    assert successor.observe([launch.id])[launch.id].phase is not Phase.ENDED
    assert owners()[launch.id]["windtunnel/simulation"] == SIMULATION
    other = successor.take_warm_launch(launch_of(runner_api.url))
    assert other is not None and other.id != launch.id

    def pod_count() -> int:
        selector = f"windtunnel/launch={launch.id}"
        names = own_cluster.kubectl("get", "pods", "-n", namespace, "-l", selector, "-o", "name")
        return len(names.split())

    until(lambda: pod_count() == 2)
    runner_api.cancel()
    for id in successor.orphans([]):
        successor.cancel(id)
    assert open_executor(runner_api_url=runner_api.url).maintain_warm_pool({}) is True
    own_cluster.until(lambda: not remaining_objects(own_cluster, namespace), "all objects are deleted")


def test_an_externally_deleted_warm_launch_is_missed_and_created_again(
    own_cluster: Cluster,
    open_executor: OpenExecutor,
    owner: ResourceKind,
    runner_api: RunnerApi,
    owners: Any,
    namespace: str,
) -> None:
    executor = open_executor(warm=[NOOP], runner_api_url=runner_api.url)
    fill_warm_pool(executor)
    (first,) = owners()
    own_cluster.kubectl("delete", owner.plural, "-n", namespace, "--all", "--wait=true")
    launch, _ = take_launch(executor, runner_api)
    with pytest.raises(Missed):
        executor.submit(launch)
    executor.cancel(launch.id)
    fill_warm_pool(executor)
    assert first not in owners() and len(owners()) == 1
    # Changed options need other pods.
    changed = open_executor(warm=[NOOP | {"pods": 2}], runner_api_url=runner_api.url, patience=60, workers_per_pod=2)
    before = set(owners())
    changed.maintain_warm_pool({})
    assert before.isdisjoint(owners()) and len(owners()) == 2
    open_executor(runner_api_url=runner_api.url).maintain_warm_pool({})
    own_cluster.until(lambda: not remaining_objects(own_cluster, namespace), "all objects are deleted")
