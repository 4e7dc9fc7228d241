"""Discovery of cache nodes from EndpointSlices of a real API server."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from datasets.scs_client.cache_nodes import CacheNode
from datasets.scs_client.endpoint_slices import EndpointSlices
from kube.access import TokenFile
from tests.cluster.conftest import Account
from tests.cluster.control_plane import ControlPlane
from tests.conftest import Clock

NAMESPACE = "caches"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
RIGHTS = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"


@pytest.fixture(scope="module")
def token(control_plane: ControlPlane, account: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The token of an account whose only right is to list this namespace's EndpointSlices."""
    reader: Account = account(NAMESPACE, "reader")
    rule = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]}
    control_plane.create(f"{RIGHTS}/roles", "Role", "slices", rules=[rule])
    control_plane.create(
        f"{RIGHTS}/rolebindings",
        "RoleBinding",
        "slices",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "slices"},
        subjects=[{"kind": "ServiceAccount", "name": "reader", "namespace": NAMESPACE}],
    )
    path = tmp_path_factory.mktemp("reader") / "token"
    path.write_text(reader.token() + "\n")
    return path


@pytest.fixture
def nodes_of(control_plane: ControlPlane, token: Path, clock: Clock) -> Iterator[Callable[..., EndpointSlices]]:
    memberships: list[EndpointSlices] = []

    def open_membership(
        service: str, *, token: Path = token, authority: Path | None = None, **options: Any
    ) -> EndpointSlices:
        access = TokenFile(control_plane.server, token, authority or control_plane.authority.path)
        memberships.append(EndpointSlices(NAMESPACE, service, access=access, clock=clock, **options))
        return memberships[-1]

    yield open_membership
    for membership in memberships:
        membership.close()


@pytest.fixture
def publish(control_plane: ControlPlane, token: Path) -> Iterator[Callable[..., None]]:
    """Create or replace an EndpointSlice of a Service; deleted when the test ends."""
    written: set[str] = set()

    def write(name: str, service: str, endpoints: list[Any], *, kind: str = "IPv4", ports: Any = None) -> None:
        if name in written:
            control_plane.request("DELETE", f"{SLICES}/{name}")
        written.add(name)
        control_plane.create(
            SLICES,
            "EndpointSlice",
            name,
            labels={"kubernetes.io/service-name": service},
            addressType=kind,
            endpoints=endpoints,
            ports=ports or [{"name": "http", "port": 5080}],
        )

    yield write
    for name in written:
        control_plane.request("DELETE", f"{SLICES}/{name}")


def endpoint(address: str, zone: str = "", **conditions: bool) -> dict[str, Any]:
    return {"addresses": [address], "conditions": conditions} | ({"zone": zone} if zone else {})


def test_ready_endpoints_are_nodes_with_their_zones(
    publish: Callable[..., None], nodes_of: Callable[..., EndpointSlices]
) -> None:
    publish(
        "scs-1",
        "scs",
        [
            endpoint("10.0.0.1", "zone-a", ready=True),
            endpoint("10.0.0.2", "zone-b", ready=False),
            endpoint("10.0.0.3", ready=True, serving=True, terminating=False),
            endpoint("10.0.0.4", ready=False, serving=True, terminating=True),
        ],
    )
    publish("scs-2", "scs", [endpoint("fd00::5", "zone-b", ready=True)], kind="IPv6")
    publish("other", "another", [endpoint("10.0.0.9", ready=True)])
    assert nodes_of("scs").nodes() == (
        CacheNode("http://10.0.0.1:5080", "zone-a"),
        CacheNode("http://10.0.0.3:5080"),
        CacheNode("http://[fd00::5]:5080", "zone-b"),
    )
    assert nodes_of("absent").nodes() == ()


def test_the_port_with_the_configured_name_is_used(
    publish: Callable[..., None], nodes_of: Callable[..., EndpointSlices]
) -> None:
    ports = [{"name": "metrics", "port": 9090}, {"name": "http", "port": 5080}]
    publish("scs-1", "scs", [endpoint("10.0.0.1", ready=True)], ports=ports)
    assert nodes_of("scs", port="http").nodes() == (CacheNode("http://10.0.0.1:5080"),)
    assert nodes_of("scs", port="none").nodes() == ()


def test_changes_of_endpoints_are_seen_at_the_next_poll_and_not_before(
    publish: Callable[..., None], nodes_of: Callable[..., EndpointSlices], clock: Clock
) -> None:
    publish("scs-1", "scs", [endpoint("10.0.0.1", ready=True)])
    membership = nodes_of("scs", pause=5.0)
    assert membership.nodes() == (CacheNode("http://10.0.0.1:5080"),)
    publish("scs-1", "scs", [endpoint("10.0.0.2", ready=True)])
    assert membership.nodes() == (CacheNode("http://10.0.0.1:5080"),)
    clock.now += 5
    assert membership.nodes() == (CacheNode("http://10.0.0.2:5080"),)


def test_more_slices_than_a_page_holds_are_all_read(
    publish: Callable[..., None], nodes_of: Callable[..., EndpointSlices]
) -> None:
    for number in range(5):
        publish(f"scs-{number}", "scs", [endpoint(f"10.0.0.{number}", ready=True)])
    assert len(nodes_of("scs", page=2).nodes()) == 5


def test_without_the_right_to_list_the_last_known_nodes_stay_in_use(
    publish: Callable[..., None],
    nodes_of: Callable[..., EndpointSlices],
    clock: Clock,
    token: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    publish("scs-1", "scs", [endpoint("10.0.0.1", ready=True)])
    token_file = tmp_path / "token"
    token_file.write_text(token.read_text())
    membership = nodes_of("scs", token=token_file)
    nodes = membership.nodes()
    token_file.write_text("a-token-that-is-no-longer-good")
    for _ in range(2):
        clock.now += 60
        with caplog.at_level(logging.WARNING):
            assert membership.nodes() == nodes != ()
    assert "401" in caplog.text and "no-longer-good" not in caplog.text
    for text in ("no\nheader", None):
        if text is None:
            token_file.unlink()
        else:
            token_file.write_text(text)
        clock.now += 60
        assert membership.nodes() == nodes
    assert "header" not in caplog.text


def test_an_api_server_of_another_authority_is_not_trusted(
    publish: Callable[..., None], nodes_of: Callable[..., EndpointSlices], tmp_path: Path
) -> None:
    from tests.cluster.authority import Authority

    publish("scs-1", "scs", [endpoint("10.0.0.1", ready=True)])
    assert nodes_of("scs", authority=Authority(tmp_path).path).nodes() == ()
