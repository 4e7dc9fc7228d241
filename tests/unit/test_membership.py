"""Membership of the cache service: nodes from settings and from EndpointSlices."""

from typing import Any

import pytest

from datasets.scs_client.cache_nodes import CacheNode, StaticMembership, parse
from datasets.scs_client.endpoint_slices import EndpointSlices, ready
from datasets.scs_client.membership import open_membership


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("http://scs-0.scs:5080", CacheNode("http://scs-0.scs:5080")),
        ("http://scs-0.scs:5080/", CacheNode("http://scs-0.scs:5080")),
        ("zone-a=http://10.0.0.1:5080", CacheNode("http://10.0.0.1:5080", "zone-a")),
        ("https://cache.example", CacheNode("https://cache.example:443")),
        ("http://[fd00::1]:80", CacheNode("http://[fd00::1]:80")),
        ("http://SCS:80", CacheNode("http://scs:80")),
    ],
)
def test_a_node_is_an_address_with_or_without_a_zone(text: str, node: CacheNode) -> None:
    assert parse(text) == node


@pytest.mark.parametrize(
    "text",
    [
        "scs:5080",
        "ftp://scs",
        "http://",
        "=http://scs",
        "http://u:p@scs",
        "http://scs/path",
        "http://scs:x",
        "http://scs?a=b",
    ],
)
def test_an_invalid_address_of_a_node_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="cache node"):
        parse(text)


def test_configured_nodes_are_sorted_without_duplicates() -> None:
    assert StaticMembership([CacheNode("http://b:1"), CacheNode("http://a:1"), CacheNode("http://b:1")]).nodes() == (
        CacheNode("http://a:1"),
        CacheNode("http://b:1"),
    )


def test_a_kubernetes_service_is_named_with_its_namespace() -> None:
    assert isinstance(open_membership(["kubernetes://windtunnel/scs:http"]), EndpointSlices)
    assert isinstance(open_membership(["http://a:1", "zone=http://b:1"]), StaticMembership)
    assert open_membership([]).nodes() == ()


@pytest.mark.parametrize("text", ["kubernetes://", "kubernetes://scs", "kubernetes:///scs", "kubernetes://a/b/c"])
def test_an_incomplete_name_of_a_service_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="namespace/service"):
        open_membership([text])


@pytest.mark.parametrize(
    "slice",
    [
        {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": []},
        {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": None},
        {"addressType": "IPv4", "endpoints": None, "ports": [{"port": 80}]},
        {"addressType": "FQDN", "endpoints": [{"addresses": ["a.b"]}], "ports": [{"port": 80}]},
    ],
)
def test_endpoints_without_a_port_or_an_address_are_skipped(slice: dict[str, Any]) -> None:
    assert ready([slice]) == ()


def test_a_missing_condition_means_ready() -> None:
    endpoints: list[dict[str, Any]] = [
        {"addresses": ["10.0.0.1"]},
        {"addresses": ["10.0.0.2"], "conditions": {}},
        {"addresses": ["10.0.0.3"], "conditions": None},
        {"addresses": ["10.0.0.4"], "conditions": {"ready": None}},
        {"addresses": ["10.0.0.5"], "conditions": {"ready": False}},
    ]
    nodes = ready([{"addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 80}]}])
    assert [node.url[-4] for node in nodes] == list("1234")
