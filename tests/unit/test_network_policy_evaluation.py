"""NetworkPolicy evaluation of the tests, checked against the rules of the API's documentation."""

from typing import Any

import pytest

from tests.chart.policy_evaluator import End, PolicyEvaluator, selects

POD_A = End(address="10.0.0.1", namespace="one", labels={"app": "a"})
POD_B = End(address="10.0.0.2", namespace="one", labels={"app": "b"})
POD_C = End(address="10.0.0.3", namespace="two", labels={"app": "c"})
INTERNET = End(address="203.0.113.7")
METADATA = End(address="169.254.169.254")
NAMESPACES: dict[str, dict[str, str]] = {"one": {}, "two": {"team": "x"}}


def policy(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "one", "name": "p"}, "spec": {"podSelector": {}, **spec}}


def test_without_policies_all_traffic_is_allowed() -> None:
    evaluator = PolicyEvaluator(NAMESPACES, [])
    assert evaluator.allows(POD_A, POD_C, 80) and evaluator.allows(POD_A, INTERNET, 80)


def test_a_policy_without_rules_denies_its_directions_in_its_namespace_only() -> None:
    evaluator = PolicyEvaluator(NAMESPACES, [policy(policyTypes=["Egress"])])
    assert not evaluator.allows(POD_A, POD_B, 80) and not evaluator.allows(POD_A, INTERNET, 80)
    assert evaluator.allows(POD_C, POD_A, 80)
    assert not PolicyEvaluator(NAMESPACES, [policy()]).allows(POD_C, POD_A, 80), (
        "a policy without policyTypes applies to ingress"
    )


def test_rules_add_up_and_both_ends_must_agree() -> None:
    deny_all = policy(policyTypes=["Ingress", "Egress"])
    egress = policy(policyTypes=["Egress"], egress=[{"to": [{"podSelector": {"matchLabels": {"app": "b"}}}]}])
    ingress = policy(policyTypes=["Ingress"], ingress=[{"from": [{"podSelector": {}}], "ports": [{"port": 80}]}])
    assert not PolicyEvaluator(NAMESPACES, [deny_all, egress]).allows(POD_A, POD_B, 80)
    evaluator = PolicyEvaluator(NAMESPACES, [deny_all, egress, ingress])
    assert evaluator.allows(POD_A, POD_B, 80)
    assert (
        not evaluator.allows(POD_A, POD_B, 81)
        and not evaluator.allows(POD_A, POD_B, 80, "UDP")
        and not evaluator.allows(POD_B, POD_A, 80)
    )


def test_a_pod_selector_alone_selects_in_the_namespace_of_its_policy() -> None:
    same_namespace = PolicyEvaluator(NAMESPACES, [policy(ingress=[{"from": [{"podSelector": {}}]}])])
    assert same_namespace.allows(POD_B, POD_A, 80) and not same_namespace.allows(POD_C, POD_A, 80)
    other_namespace = PolicyEvaluator(
        NAMESPACES, [policy(ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"team": "x"}}}]}])]
    )
    assert other_namespace.allows(POD_C, POD_A, 80) and not other_namespace.allows(POD_B, POD_A, 80)
    peer = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "c"}}}
    both_selectors = PolicyEvaluator(NAMESPACES, [policy(ingress=[{"from": [peer]}])])
    assert both_selectors.allows(POD_C, POD_A, 80) and not both_selectors.allows(POD_B, POD_A, 80)


def test_ip_blocks_have_exceptions() -> None:
    block = {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}
    evaluator = PolicyEvaluator(NAMESPACES, [policy(policyTypes=["Egress"], egress=[{"to": [block]}])])
    assert evaluator.allows(POD_A, INTERNET, 80) and not evaluator.allows(POD_A, METADATA, 80)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"key": "app", "operator": "In", "values": ["a"]}, True),
        ({"key": "app", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "none", "operator": "NotIn", "values": ["a"]}, True),
        ({"key": "app", "operator": "Exists"}, True),
        ({"key": "app", "operator": "DoesNotExist"}, False),
    ],
)
def test_expressions_select_by_their_operator(expression: dict[str, Any], expected: bool) -> None:
    assert selects({"matchExpressions": [expression]}, {"app": "a"}) is expected
