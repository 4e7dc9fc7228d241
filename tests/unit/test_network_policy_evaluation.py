"""Evaluation of NetworkPolicies in tests, checked against the rules of the API's documentation."""

from typing import Any

import pytest

from tests.chart.reach import End, PolicyEvaluator, selects

A = End(address="10.0.0.1", namespace="one", labels={"app": "a"})
B = End(address="10.0.0.2", namespace="one", labels={"app": "b"})
C = End(address="10.0.0.3", namespace="two", labels={"app": "c"})
OUT = End(address="203.0.113.7")
METADATA = End(address="169.254.169.254")
NAMESPACES: dict[str, dict[str, str]] = {"one": {}, "two": {"team": "x"}}


def policy(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "one", "name": "p"}, "spec": {"podSelector": {}, **spec}}


def test_without_policies_all_traffic_is_allowed() -> None:
    assert PolicyEvaluator(NAMESPACES, []).allows(A, C, 80) and PolicyEvaluator(NAMESPACES, []).allows(A, OUT, 80)


def test_a_policy_without_rules_denies_its_directions_in_its_namespace_only() -> None:
    world = PolicyEvaluator(NAMESPACES, [policy(policyTypes=["Egress"])])
    assert not world.allows(A, B, 80) and not world.allows(A, OUT, 80)
    assert world.allows(C, A, 80)
    assert not PolicyEvaluator(NAMESPACES, [policy()]).allows(C, A, 80), (
        "what names no direction is about what comes in"
    )


def test_rules_add_up_and_both_ends_must_agree() -> None:
    closed = policy(policyTypes=["Ingress", "Egress"])
    out = policy(policyTypes=["Egress"], egress=[{"to": [{"podSelector": {"matchLabels": {"app": "b"}}}]}])
    into = policy(policyTypes=["Ingress"], ingress=[{"from": [{"podSelector": {}}], "ports": [{"port": 80}]}])
    assert not PolicyEvaluator(NAMESPACES, [closed, out]).allows(A, B, 80)
    both = PolicyEvaluator(NAMESPACES, [closed, out, into])
    assert both.allows(A, B, 80)
    assert not both.allows(A, B, 81) and not both.allows(A, B, 80, "UDP") and not both.allows(B, A, 80)


def test_a_pod_selector_alone_selects_in_the_same_namespace() -> None:
    here = PolicyEvaluator(NAMESPACES, [policy(ingress=[{"from": [{"podSelector": {}}]}])])
    assert here.allows(B, A, 80) and not here.allows(C, A, 80)
    there = PolicyEvaluator(
        NAMESPACES, [policy(ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "x"}}}]}])]
    )
    assert there.allows(C, A, 80) and not there.allows(B, A, 80)
    both = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "c"}}}
    narrowed = PolicyEvaluator(NAMESPACES, [policy(ingress=[{"from": [both]}])])
    assert narrowed.allows(C, A, 80) and not narrowed.allows(B, A, 80)


def test_ip_blocks_have_exceptions() -> None:
    block = {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}
    world = PolicyEvaluator(NAMESPACES, [policy(policyTypes=["Egress"], egress=[{"to": [block]}])])
    assert world.allows(A, OUT, 80) and not world.allows(A, METADATA, 80)


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
