"""NetworkPolicies of the chart and of launches, enforced by a firewall: closed connections, working simulations."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.enforcer import enforced
from tests.cluster.platform_release import PROJECT, Installed
from tests.cluster.pod_exec import Container, bundle, metadata_service, surroundings
from tests.cluster.test_platform import ring

#: Runs these attacks, and prints the outcome of each.
ASKING = """
import attack_stage, json, on_pod
for name in {names!r}:
    try:
        said = str(getattr(on_pod, name)(attack_stage.STAGE))
    except OSError:
        said = "closed"
    print(json.dumps([name, said]))
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
#: Listens at a port, and says so.
LISTENING = """
import socket
with socket.create_server(("", 26000)) as server:
    print("ready", flush=True)
    while True:
        server.accept()[0].close()
"""
CALLING = """
import socket, sys
try:
    host, _, port = sys.stdin.readline().strip().rpartition(":")
    socket.create_connection((host, int(port)), 3).close()
    print("connected")
except OSError:
    print("closed")
"""


@pytest.fixture(scope="module")
def around(platform: Installed, own_cluster: Cluster) -> Iterator[dict[str, Any]]:
    """Addresses around a pod."""
    with metadata_service(own_cluster):
        yield surroundings(platform, own_cluster)


@pytest.fixture
def closed(own_cluster: Cluster) -> Iterator[None]:
    """Policies are enforced."""
    with enforced(own_cluster):
        yield


@pytest.fixture
def pods(platform: Installed) -> Iterator[list[Any]]:
    """Two working pods of the project, of two simulations."""
    ids = [
        platform.submit(
            dataset="noop", runtime="python", workers=1, scenarios={"range": [0, 10_000]}, params={"sleep_ms": 200}
        )
        for _ in range(2)
    ]
    found: list[Any] = []

    def play() -> bool:
        found[:] = [one for id in ids for one in platform.pods(f"windtunnel/simulation={id}") if at_work(one)]
        return len(found) == len(ids)

    platform.until(play, "both play")
    yield found
    for id in ids:
        platform.cancel(id)
        platform.ended(id)


def at_work(pod: Any) -> bool:
    said = pod["status"].get("containerStatuses", [])
    return len(said) == 3 and all("running" in one["state"] for one in said)


def inside(platform: Installed, pod: Any) -> Container:
    """Return the container of a pod's model server."""
    return Container(platform.cluster, PROJECT, pod["metadata"]["name"], "model-server")


def outcomes(container: Container, stage: dict[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    said = container.python(bundle(ASKING.format(names=names), stage), timeout=120.0)
    return dict(json.loads(line) for line in said.splitlines())


def called(caller: Container, address: str) -> str:
    return caller.python(CALLING, given=f"{address}\n").strip()


def test_connections_that_are_open_without_enforcement_are_closed_with_it(
    platform: Installed, own_cluster: Cluster, around: dict[str, Any], pods: list[Any]
) -> None:
    one, other = (inside(platform, pod) for pod in pods)
    neighbour = f"{pods[1]['status']['podIP']}:26000"
    others = (neighbour, around["redis"], around["store"])
    with other.keep(LISTENING) as listening:
        try:
            everywhere = CLOSED + tuple(OPEN)
            platform.until(lambda: "closed" not in outcomes(one, around, everywhere).values(), "all is open")
            assert [called(one, address) for address in others] == ["connected"] * len(others)
            with enforced(own_cluster):
                everything = dict.fromkeys(CLOSED, "closed") | OPEN
                seen: list[dict[str, str]] = []

                def holds() -> bool:
                    seen.append(outcomes(one, around, everywhere))
                    return seen[-1] == everything

                try:
                    platform.until(holds, "policies hold", 60.0)
                except AssertionError:
                    pytest.fail(f"{seen[-1]}\n{own_cluster.node(0).said('kube-router')}")
                assert [called(one, address) for address in others] == ["closed"] * len(others)
            platform.until(lambda: called(one, neighbour) == "connected", "nobody enforces it any more")
        finally:
            listening.kill()


@pytest.mark.usefixtures("closed")
def test_a_simulation_runs_to_its_end_with_enforced_policies(platform: Installed) -> None:
    id = platform.submit(dataset="car_street", runtime="python", model="idm", scenarios={"range": [0, 12]})
    assert platform.ended(id)["state"] == "succeeded"
    assert [one["task"] for one in platform.results(id)] == list(range(12))
    platform.until(lambda: not platform.left(), "nothing is left of it")


@pytest.mark.usefixtures("closed")
def test_the_replicas_of_a_gang_find_each_other_with_enforced_policies(platform: Installed) -> None:
    ended = platform.ended(ring(platform, tasks=2), 240.0)
    assert ended["state"] == "succeeded", (ended["reason"], platform.messages(ended["id"]))
    assert [one["metrics"]["total"] for one in platform.results(ended["id"])] == [11, 11]
    platform.until(lambda: not platform.left(), "nothing is left of it")
