"""The evaluator of NetworkPolicies, on what the API's own words say of them."""

from typing import Any

import pytest

from tests.chart.reach import End, World, selects

A = End(address="10.0.0.1", namespace="one", labels={"app": "a"})
B = End(address="10.0.0.2", namespace="one", labels={"app": "b"})
C = End(address="10.0.0.3", namespace="two", labels={"app": "c"})
OUT = End(address="203.0.113.7")
METADATA = End(address="169.254.169.254")
NAMESPACES: dict[str, dict[str, str]] = {"one": {}, "two": {"team": "x"}}


def policy(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "one", "name": "p"}, "spec": {"podSelector": {}, **spec}}


def test_without_policies_everything_passes() -> None:
    assert World(NAMESPACES, []).lets(A, C, 80) and World(NAMESPACES, []).lets(A, OUT, 80)


def test_a_policy_without_rules_closes_its_directions_in_its_namespace_alone() -> None:
    world = World(NAMESPACES, [policy(policyTypes=["Egress"])])
    assert not world.lets(A, B, 80) and not world.lets(A, OUT, 80)
    assert world.lets(C, A, 80)
    assert not World(NAMESPACES, [policy()]).lets(C, A, 80), "what names no direction is about what comes in"


def test_rules_add_up_and_both_ends_must_agree() -> None:
    closed = policy(policyTypes=["Ingress", "Egress"])
    out = policy(policyTypes=["Egress"], egress=[{"to": [{"podSelector": {"matchLabels": {"app": "b"}}}]}])
    into = policy(policyTypes=["Ingress"], ingress=[{"from": [{"podSelector": {}}], "ports": [{"port": 80}]}])
    assert not World(NAMESPACES, [closed, out]).lets(A, B, 80)
    both = World(NAMESPACES, [closed, out, into])
    assert both.lets(A, B, 80)
    assert not both.lets(A, B, 81) and not both.lets(A, B, 80, "UDP") and not both.lets(B, A, 80)


def test_a_pod_selector_alone_means_the_own_namespace() -> None:
    here = World(NAMESPACES, [policy(ingress=[{"from": [{"podSelector": {}}]}])])
    assert here.lets(B, A, 80) and not here.lets(C, A, 80)
    there = World(NAMESPACES, [policy(ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "x"}}}]}])])
    assert there.lets(C, A, 80) and not there.lets(B, A, 80)
    both = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "c"}}}
    narrowed = World(NAMESPACES, [policy(ingress=[{"from": [both]}])])
    assert narrowed.lets(C, A, 80) and not narrowed.lets(B, A, 80)


def test_blocks_of_addresses_have_exceptions() -> None:
    block = {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}
    world = World(NAMESPACES, [policy(policyTypes=["Egress"], egress=[{"to": [block]}])])
    assert world.lets(A, OUT, 80) and not world.lets(A, METADATA, 80)


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ({"key": "app", "operator": "In", "values": ["a"]}, True),
        ({"key": "app", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "none", "operator": "NotIn", "values": ["a"]}, True),
        ({"key": "app", "operator": "Exists"}, True),
        ({"key": "app", "operator": "DoesNotExist"}, False),
    ],
)
def test_expressions_select_by_their_operator(expression: dict[str, Any], answer: bool) -> None:
    assert selects({"matchExpressions": [expression]}, {"app": "a"}) is answer
