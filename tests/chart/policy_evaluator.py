"""Evaluator of NetworkPolicies: which connections they allow, by the semantics of networking.k8s.io/v1.

Where network plugins differ in the meaning of an ``ipBlock`` (whether it covers pods), the wider meaning is used: a
connection that is refused here is refused by every plugin.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class End:
    """A pod, or (without a namespace) any other address."""

    address: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects these labels; an empty selector selects everything."""
    if any(labels.get(name) != value for name, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expressed(expression, labels) for expression in selector.get("matchExpressions") or ())


def _expressed(expression: Object, labels: Mapping[str, str]) -> bool:
    name, operator, values = expression["key"], expression["operator"], expression.get("values") or ()
    match operator:
        case "In":
            return labels.get(name) in values
        case "NotIn":
            return labels.get(name) not in values
        case "Exists":
            return name in labels
        case "DoesNotExist":
            return name not in labels
    raise ValueError(f"unknown operator of a label selector: {operator}")


class PolicyEvaluator:
    """Evaluates the policies of namespaces with labels."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]], policies: Iterable[Object]) -> None:
        self._namespaces = {
            name: {"kubernetes.io/metadata.name": name, **labels} for name, labels in namespaces.items()
        }
        self._policies = list(policies)

    def allows(self, source: End, target: End, port: int, protocol: str = "TCP") -> bool:
        """Return whether a connection is allowed: egress of its source and ingress of its target allow it."""
        egress_allowed = self._allows_direction("Egress", source, target, port, protocol)
        return egress_allowed and self._allows_direction("Ingress", target, source, port, protocol)

    def _allows_direction(self, direction: str, end: End, other: End, port: int, protocol: str) -> bool:
        policies = [policy for policy in self._policies if self._applies(policy, end, direction)]
        if not policies:
            return True
        rules, peers = ("egress", "to") if direction == "Egress" else ("ingress", "from")
        return any(
            self._peer(rule.get(peers), other, policy["metadata"]["namespace"]) and _port(rule, port, protocol)
            for policy in policies
            for rule in policy["spec"].get(rules) or ()
        )

    def _applies(self, policy: Object, end: End, direction: str) -> bool:
        spec = policy["spec"]
        kinds = spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]
        in_namespace = end.namespace != "" and end.namespace == policy["metadata"]["namespace"]
        return in_namespace and direction in kinds and selects(spec["podSelector"], end.labels)

    def _peer(self, peers: Any, end: End, namespace: str) -> bool:
        return not peers or any(self._matches(peer, end, namespace) for peer in peers)

    def _matches(self, peer: Object, end: End, namespace: str) -> bool:
        if "ipBlock" in peer:
            address, block = ip_address(end.address), peer["ipBlock"]
            within = address in ip_network(block["cidr"])
            return within and not any(address in ip_network(excluded) for excluded in block.get("except") or ())
        if not end.namespace:
            return False
        if "namespaceSelector" in peer:
            if not selects(peer["namespaceSelector"], self._namespaces[end.namespace]):
                return False
        elif end.namespace != namespace:
            return False
        return selects(peer.get("podSelector") or {}, end.labels)


def _port(rule: Object, port: int, protocol: str) -> bool:
    ports = rule.get("ports")
    return not ports or any(
        entry.get("protocol", "TCP") == protocol
        and entry.get("port", port) <= port <= entry.get("endPort", entry.get("port", port))
        for entry in ports
    )
