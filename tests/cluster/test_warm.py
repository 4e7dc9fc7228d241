"""Warm pods on a real cluster: used, labelled, replaced, and deleted when the option is removed."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.domain.launches import Launch, Phase, WarmLaunch
from tests.cluster.cluster import Cluster
from tests.cluster.test_kubernetes_executor import Open, left, offered
from tests.cluster.test_kubernetes_executor import images as images  # fixtures are found by their names in here
from tests.cluster.test_kubernetes_executor import opened as opened
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
    made = offered(own_cluster, tmp_path, launched=False)
    yield made
    made.close()


@pytest.fixture
def owners(own_cluster: Cluster, owner: ResourceKind, namespace: str) -> Callable[[], dict[str, dict[str, str]]]:
    """Labels of the owners, by launch."""

    def look() -> dict[str, dict[str, str]]:
        found = json.loads(own_cluster.kubectl("get", owner.plural, "-n", namespace, "-o", "json"))["items"]
        return {one["metadata"]["labels"]["windtunnel/launch"]: one["metadata"]["labels"] for one in found}

    return look


def whole(executor: KubernetesExecutor, taken: dict[str, ActiveLaunch] | None = None) -> None:
    """Maintain the warm pool until it is full."""
    until(lambda: executor.maintain_warm_pool(taken or {}), 120)


def take(executor: KubernetesExecutor, runner_api: RunnerApi) -> tuple[Launch, WarmLaunch]:
    """Do what a dispatcher does: insert the launch with the id of a warm launch."""
    asked = launch_of(runner_api.url, simulation_id=SIMULATION, workers=1)
    waiting = executor.take_warm_launch(asked)
    assert waiting is not None
    runner_api.launch(id=waiting.id, token_hash=waiting.token_hash)
    return replace(asked, id=waiting.id, token=""), waiting


def test_a_warm_pod_is_taken_and_replaced_and_leaves_no_objects(
    own_cluster: Cluster, opened: Open, runner_api: RunnerApi, owners: Any, namespace: str
) -> None:
    executor = opened(warm=[NOOP], runner_api_url=runner_api.url)
    before = executor.capacity()["cpu"]
    assert executor.maintain_warm_pool({}) is False and executor.orphans([]) == []
    assert executor.capacity()["cpu"] == before - 1, "what waits holds its cores"
    assert executor.take_warm_launch(launch_of(runner_api.url)) is None, "it is not ready yet"
    whole(executor)
    until(lambda: "wait" in runner_api.asked)
    (first,) = owners()

    launch, waiting = take(executor, runner_api)
    assert waiting.id == first and executor.take_warm_launch(launch_of(runner_api.url)) is None
    began = time.monotonic()
    until(lambda: "report" in runner_api.asked)
    print(f"first results {time.monotonic() - began:.3f} s after the row")
    executor.submit(launch)
    executor.submit(launch)
    assert executor.observe([first])[first].phase is Phase.RUNNING
    labels = owners()[first]
    assert (labels["windtunnel/simulation"], labels["windtunnel/attempt"]) == (SIMULATION, "1")
    assert "windtunnel/warm" not in labels

    whole(executor, {first: ActiveLaunch(SIMULATION, 1, 1)})
    assert len(owners()) == 2 and executor.orphans([first]) == [] and executor.orphans([]) == [first]
    runner_api.cancel()
    until(lambda: executor.observe([first])[first].phase is Phase.ENDED)
    executor.cancel(first)
    assert opened(runner_api_url=runner_api.url).maintain_warm_pool({}) is True
    own_cluster.until(lambda: not left(own_cluster, namespace), "nothing waits where nobody asks for it")


def test_a_dispatcher_killed_before_labelling_loses_neither_launch_nor_workers(
    own_cluster: Cluster, opened: Open, runner_api: RunnerApi, owners: Any, namespace: str
) -> None:
    executor = opened(warm=[NOOP], runner_api_url=runner_api.url)
    whole(executor)
    launch, _ = take(executor, runner_api)  # and the dispatcher is killed
    until(lambda: "report" in runner_api.asked)

    successor = opened(warm=[NOOP], runner_api_url=runner_api.url)
    taken = {launch.id: ActiveLaunch(SIMULATION, 1, 2)}
    assert successor.orphans(list(taken)) == []
    whole(successor, taken)
    assert successor.observe([launch.id])[launch.id].phase is not Phase.ENDED
    assert owners()[launch.id]["windtunnel/simulation"] == SIMULATION
    other = successor.take_warm_launch(launch_of(runner_api.url))
    assert other is not None and other.id != launch.id

    def at_work() -> int:
        selector = f"windtunnel/launch={launch.id}"
        said = own_cluster.kubectl("get", "pods", "-n", namespace, "-l", selector, "-o", "name")
        return len(said.split())

    until(lambda: at_work() == 2)
    runner_api.cancel()
    for id in successor.orphans([]):
        successor.cancel(id)
    assert opened(runner_api_url=runner_api.url).maintain_warm_pool({}) is True
    own_cluster.until(lambda: not left(own_cluster, namespace), "nothing is left")


def test_an_externally_deleted_warm_launch_is_missed_and_created_again(
    own_cluster: Cluster, opened: Open, owner: ResourceKind, runner_api: RunnerApi, owners: Any, namespace: str
) -> None:
    executor = opened(warm=[NOOP], runner_api_url=runner_api.url)
    whole(executor)
    (first,) = owners()
    own_cluster.kubectl("delete", owner.plural, "-n", namespace, "--all", "--wait=true")
    launch, _ = take(executor, runner_api)
    with pytest.raises(Missed):
        executor.submit(launch)
    executor.cancel(launch.id)
    whole(executor)
    assert first not in owners() and len(owners()) == 1
    # Other images need other pods.
    changed = opened(warm=[NOOP | {"pods": 2}], runner_api_url=runner_api.url, patience=60, workers_per_pod=2)
    kept = set(owners())
    changed.maintain_warm_pool({})
    assert kept.isdisjoint(owners()) and len(owners()) == 2
    opened(runner_api_url=runner_api.url).maintain_warm_pool({})
    own_cluster.until(lambda: not left(own_cluster, namespace), "nothing is left")
