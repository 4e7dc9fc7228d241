"""NetworkPolicies of the chart and of launches, enforced by a firewall: closed connections, working simulations."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.enforcer import enforced
from tests.cluster.platform_release import PROJECT, PlatformRelease
from tests.cluster.pod_exec import Container, bundle, metadata_service, target_addresses
from tests.cluster.test_platform import submit_gang

#: Runs the named attacks, and prints the outcome of each.
ATTACK_SCRIPT = """
import attack_stage, json, on_pod
for name in {names!r}:
    try:
        result = str(getattr(on_pod, name)(attack_stage.STAGE))
    except OSError:
        result = "closed"
    print(json.dumps([name, result]))
"""
CLOSED = (
    "ask_the_api_server",
    "ask_the_kubelet",
    "ask_another_pod",
    "ask_for_credentials_of_the_machine",
    "reach_the_database_server",
    "multipath_to_another_pod",
)
#: Connections that a runner needs; a policy applies to pods, not containers.
OPEN = {"ask_the_runner_api": "HTTP 401", "ask_the_cache": "HTTP 401"}
#: Prints `ready` once it listens on a port.
LISTEN_SCRIPT = """
import socket
with socket.create_server(("", 26000)) as server:
    print("ready", flush=True)
    while True:
        server.accept()[0].close()
"""
CONNECT_SCRIPT = """
import socket, sys
try:
    host, _, port = sys.stdin.readline().strip().rpartition(":")
    socket.create_connection((host, int(port)), 3).close()
    print("connected")
except OSError:
    print("closed")
"""


@pytest.fixture(scope="module")
def targets(platform: PlatformRelease, own_cluster: Cluster) -> Iterator[dict[str, Any]]:
    """Addresses of the servers that attacks try."""
    with metadata_service(own_cluster):
        yield target_addresses(platform, own_cluster)


@pytest.fixture
def enforced_policies(own_cluster: Cluster) -> Iterator[None]:
    """NetworkPolicies are enforced while the test runs."""
    with enforced(own_cluster):
        yield


@pytest.fixture
def pods(platform: PlatformRelease) -> Iterator[list[Any]]:
    """Two running pods of the project, of two simulations."""
    ids = [
        platform.submit(
            dataset="noop", runtime="python", workers=1, scenarios={"range": [0, 10_000]}, params={"sleep_ms": 200}
        )
        for _ in range(2)
    ]
    pods: list[Any] = []

    def both_run() -> bool:
        pods[:] = [pod for id in ids for pod in platform.pods(f"windtunnel/simulation={id}") if all_containers_run(pod)]
        return len(pods) == len(ids)

    platform.until(both_run, "pods of both simulations run")
    yield pods
    for id in ids:
        platform.cancel(id)
        platform.wait_for_end(id)


def all_containers_run(pod: Any) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return len(statuses) == 3 and all("running" in status["state"] for status in statuses)


def model_server(platform: PlatformRelease, pod: Any) -> Container:
    """Return the container of a pod's model server."""
    return Container(platform.cluster, PROJECT, pod["metadata"]["name"], "model-server")


def run_attacks(container: Container, stage: dict[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    output = container.python(bundle(ATTACK_SCRIPT.format(names=names), stage), timeout=120.0)
    return dict(json.loads(line) for line in output.splitlines())


def connect(caller: Container, address: str) -> str:
    return caller.python(CONNECT_SCRIPT, stdin=f"{address}\n").strip()


def test_connections_that_are_open_without_enforcement_are_closed_with_it(
    platform: PlatformRelease, own_cluster: Cluster, targets: dict[str, Any], pods: list[Any]
) -> None:
    client, server = (model_server(platform, pod) for pod in pods)
    server_address = f"{pods[1]['status']['podIP']}:26000"
    addresses = (server_address, targets["redis"], targets["store"])
    with server.start(LISTEN_SCRIPT) as listening:
        try:
            attacks = CLOSED + tuple(OPEN)
            platform.until(
                lambda: "closed" not in run_attacks(client, targets, attacks).values(), "all addresses are reachable"
            )
            assert [connect(client, address) for address in addresses] == ["connected"] * len(addresses)
            with enforced(own_cluster):
                expected = dict.fromkeys(CLOSED, "closed") | OPEN
                outcomes: list[dict[str, str]] = []

                def enforced_as_expected() -> bool:
                    outcomes.append(run_attacks(client, targets, attacks))
                    return outcomes[-1] == expected

                try:
                    platform.until(enforced_as_expected, "the policies are enforced", 60.0)
                except AssertionError:
                    pytest.fail(f"{outcomes[-1]}\n{own_cluster.node(0).log_tail('kube-router')}")
                assert [connect(client, address) for address in addresses] == ["closed"] * len(addresses)
            platform.until(
                lambda: connect(client, server_address) == "connected", "the policies are not enforced any more"
            )
        finally:
            listening.kill()


@pytest.mark.usefixtures("enforced_policies")
def test_a_simulation_runs_to_its_end_with_enforced_policies(platform: PlatformRelease) -> None:
    id = platform.submit(dataset="car_street", runtime="python", model="idm", scenarios={"range": [0, 12]})
    assert platform.wait_for_end(id)["state"] == "succeeded"
    assert [result["task"] for result in platform.results(id)] == list(range(12))
    platform.until(lambda: not platform.remaining_objects(), "all of its objects are deleted")


@pytest.mark.usefixtures("enforced_policies")
def test_the_replicas_of_a_gang_find_each_other_with_enforced_policies(platform: PlatformRelease) -> None:
    ended = platform.wait_for_end(submit_gang(platform, tasks=2), 240.0)
    assert ended["state"] == "succeeded", (ended["reason"], platform.messages(ended["id"]))
    assert [result["metrics"]["total"] for result in platform.results(ended["id"])] == [11, 11]
    platform.until(lambda: not platform.remaining_objects(), "all of its objects are deleted")
