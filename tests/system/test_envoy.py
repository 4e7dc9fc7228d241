"""The chart's bootstrap in a real Envoy, with three real cache nodes: keys arrive unchanged and keep their node."""

import copy
import json
import os
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cached import tool
from tests.chart.rendering import CASES, named, of_kind, rendered
from tests.contracts.cache_service import AUTHORIZED, Answer, Cache, RawConnection, cache_config
from tests.ports import free_ports
from tests.system.platform_process import die_with
from tests.waiting import until

pytestmark = pytest.mark.timeout(1000)  # once, helm is built from its sources and Envoy is downloaded

NODES = 3
#: Time limit of Envoy's connections and health checks; a second would do on an idle machine.
TIMEOUT = "60s"
#: Keys that a proxy which normalizes paths would change or confuse.
KEYS = (
    "a.b",
    "a%2eb",
    "x//y",
    "x/y",
    "x/./y",
    "x/../y",
    "a%2Fb",
    "a/b",
    "A%2fb",
    "q?a=1",
    "q",
    "file://tmp/x.bin",
    "k;v",
)


def local_bootstrap(bootstrap: Any, nodes: list[int], port: int, stats_port: int, admin: int) -> Any:
    """Return the chart's bootstrap with this machine's addresses in place of the cluster's.

    Timeouts are long: a node that answers late on a busy machine would count as unhealthy and lose its keys.
    """
    local = copy.deepcopy(bootstrap)
    resources = local["static_resources"]
    for listener in resources["listeners"]:
        listener_port = {"scs": port, "admin": stats_port}[listener["name"]]
        listener["address"] = address(listener_port)
    for cluster in resources["clusters"]:
        ports = nodes if cluster["name"] == "scs" else [admin]
        cluster["connect_timeout"] = TIMEOUT
        # By default, threads learn up to a second late that a node is healthy, and route its keys elsewhere until then.
        cluster.setdefault("common_lb_config", {})["update_merge_window"] = "0s"
        for check in cluster.get("health_checks", []):
            check["timeout"] = TIMEOUT
        cluster["load_assignment"]["endpoints"] = [
            {"lb_endpoints": [{"endpoint": {"address": address(node_port)}} for node_port in ports]}
        ]
    local["admin"]["address"] = address(admin)
    return local


def address(port: int) -> Any:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


class EnvoyRig:
    """An Envoy process and the cache nodes behind it."""

    def __init__(self, nodes: list[Cache], port: int, stats_port: int) -> None:
        self.nodes, self.port, self.stats_port = nodes, port, stats_port
        self.up = list(nodes)

    def stop(self, node: Cache) -> None:
        """Stop a node; idempotent."""
        if node in self.up:
            self.up.remove(node)
            node.stop()

    def ask(self, method: str, key: str, body: bytes = b"", *, headers: str = AUTHORIZED) -> Answer:
        """Send a request through Envoy with an unmodified target."""
        length = f"Content-Length: {len(body)}\r\n" if method == "PUT" else ""
        connection = RawConnection(self.port)
        try:
            target = f"/v1/objects/private/{key}"
            connection.send(f"{method} {target} HTTP/1.1\r\nHost: here\r\n{length}{headers}\r\n".encode() + body)
            return connection.answer()
        finally:
            connection.close()

    def holders(self, key: str) -> list[int]:
        """Return the numbers of the nodes that have an object."""
        return [number for number, node in enumerate(self.nodes) if node.get(key).status == 200]

    def probe(self, path: str) -> tuple[int, str]:
        """Send a GET to the probe port; a response without Content-Length ends with the connection."""
        with socket.create_connection(("127.0.0.1", self.stats_port), timeout=30) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode())
            text = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
        return int(text.split()[1]), text

    def metrics(self) -> str:
        """Return Envoy's metrics of its nodes: failed health checks and rerouted requests."""
        names = ("membership", "health_check", "outlier", "retry", "connect_")
        lines = self.probe("/stats/prometheus")[1].splitlines()
        return "\n".join(line for line in lines if '"scs"' in line and any(name in line for name in names))


@pytest.fixture(scope="module")
def envoy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvoyRig]:
    """Three cache nodes and an Envoy."""
    folder, parent = tmp_path_factory.mktemp("envoy"), os.getpid()
    port, stats_port, admin_port = free_ports(3)
    with ExitStack() as stack:
        nodes = [Cache(cache_config(folder / str(number))) for number in range(NODES)]
        rig = EnvoyRig(nodes, port, stats_port)
        for node in nodes:
            stack.callback(rig.stop, node)
        bootstrap = json.loads(named(rendered("trial"), "ConfigMap", "windtunnel-envoy")["data"]["envoy.json"])
        file = folder / "envoy.json"
        file.write_text(
            json.dumps(local_bootstrap(bootstrap, [node.port for node in nodes], port, stats_port, admin_port))
        )
        log = stack.enter_context(open(folder / "log", "wb"))
        arguments = ["-c", str(file), "--concurrency", "2", "--disable-hot-restart", "--log-level", "warning"]
        process = subprocess.Popen(
            [tool("envoy"), *arguments], stdout=log, stderr=log, preexec_fn=lambda: die_with(parent)
        )
        try:
            until(lambda: all_nodes_healthy(rig), message="Envoy does not report all nodes as healthy")
            until(lambda: routes_agree(rig), message="Envoy's threads route a key to different nodes")
            yield rig
        finally:
            process.terminate()
            process.wait(60)


def all_nodes_healthy(envoy: EnvoyRig) -> bool:
    """Return whether Envoy runs and reports all nodes as healthy."""
    try:
        status, text = envoy.probe("/stats/prometheus")
    except OSError:
        return False
    expected = f'envoy_cluster_membership_healthy{{envoy_cluster_name="scs"}} {NODES}'
    return status == 200 and expected in text


def routes_agree(envoy: EnvoyRig) -> bool:
    """Return whether all threads of Envoy route a key to the same node; connections are spread over threads."""
    keys = [f"settled/{number}" for number in range(20)]
    puts = [envoy.ask("PUT", key, b"x").status for key in keys for _ in range(4)]
    return set(puts) == {201} and all(len(envoy.holders(key)) == 1 for key in keys)


def test_a_key_reaches_the_cache_unchanged(envoy: EnvoyRig) -> None:
    for key in KEYS:
        assert envoy.ask("PUT", key, key.encode()).status == 201, key
    for key in KEYS:
        response = envoy.ask("GET", key)
        assert (response.status, response.body) == (200, key.encode()), envoy.metrics()
        assert len(envoy.holders(key)) == 1, key


def test_keys_spread_evenly_and_each_keeps_its_node(envoy: EnvoyRig) -> None:
    keys = [f"sha256/{number:064x}" for number in range(90)]
    for key in keys:
        assert envoy.ask("PUT", key, b"x").status == 201
    counts = Counter(number for key in keys for number in envoy.holders(key))
    assert sum(counts.values()) == len(keys), (counts, envoy.metrics())
    assert min(counts.values()) > len(keys) / NODES / 2, counts
    for _ in range(3):
        assert [envoy.ask("GET", key).status for key in keys[:10]] == [200] * 10, envoy.metrics()


def test_refusals_of_the_cache_are_passed_on(envoy: EnvoyRig) -> None:
    assert envoy.ask("GET", "nothing-here").status == 404
    assert envoy.ask("GET", "a.b", headers="").status == 401
    assert envoy.ask("PUT", "b", b"x", headers="Authorization: Bearer stranger\r\n").status == 403


def test_a_key_with_a_fragment_is_refused_and_not_truncated(envoy: EnvoyRig) -> None:
    assert envoy.ask("PUT", "cut", b"x").status == 201
    assert envoy.ask("GET", "cut#short").status == 400


def test_a_large_body_passes_completely(envoy: EnvoyRig) -> None:
    body = os.urandom(8 << 20)
    assert envoy.ask("PUT", "large", body).status == 201
    assert envoy.ask("GET", "large").body == body


def test_only_health_and_metrics_are_served_to_probes(envoy: EnvoyRig) -> None:
    assert envoy.probe("/ready")[0] == 200
    for path in ("/quitquitquit", "/config_dump", "/clusters", "/"):
        assert envoy.probe(path)[0] == 404, path


def test_a_read_from_a_lost_node_is_a_miss_at_another_node(envoy: EnvoyRig) -> None:
    keys = [f"gone/{number}" for number in range(30)]
    for key in keys:
        assert envoy.ask("PUT", key, b"x").status == 201
    nodes = {key: envoy.holders(key)[0] for key in keys}
    victim = Counter(nodes.values()).most_common(1)[0][0]
    envoy.stop(envoy.nodes[victim])
    assert {envoy.ask("GET", key).status for key in keys} <= {200, 404}, "no read fails, not even the first"
    assert {envoy.ask("PUT", key, b"y").status for key in keys} == {201}, "the other nodes accept its keys"
    other_keys = [key for key in keys if nodes[key] != victim]
    unmoved = [key for key in other_keys if envoy.nodes[nodes[key]].get(key).body == b"y"]
    assert len(unmoved) > 0.7 * len(other_keys), "other nodes keep their keys, except the few that Maglev moves"


@pytest.mark.parametrize("case", CASES)
def test_envoy_accepts_every_bootstrap(case: str, tmp_path: Path) -> None:
    for number, config_map in enumerate(of_kind(rendered(case), "ConfigMap")):
        if "envoy.json" in config_map["data"]:
            file = tmp_path / f"{number}.json"
            file.write_text(config_map["data"]["envoy.json"])
            command = [tool("envoy"), "--mode", "validate", "--disable-hot-restart", "-c", str(file)]
            process = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert process.returncode == 0 and "eprecated" not in process.stderr, process.stderr
