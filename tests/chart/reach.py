"""What NetworkPolicies let through, by the words of networking.k8s.io/v1, over rendered objects.

Where networks differ in how they read an ``ipBlock`` (whether it covers pods), the wider reading is taken: what is
refused here is refused by every one of them.
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
    """Tell whether a label selector does; an empty one selects everything."""
    if any(labels.get(name) != value for name, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expressed(one, labels) for one in selector.get("matchExpressions") or ())


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
    raise ValueError(f"no operator of label selectors: {operator}")


class World:
    """Namespaces with their labels, and the policies in them."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]], policies: Iterable[Object]) -> None:
        self._namespaces = {
            name: {"kubernetes.io/metadata.name": name, **labels} for name, labels in namespaces.items()
        }
        self._policies = list(policies)

    def lets(self, source: End, target: End, port: int, protocol: str = "TCP") -> bool:
        """Tell whether a connection comes about: its source may send it, and its target may get it."""
        sent = self._open("Egress", source, target, port, protocol)
        return sent and self._open("Ingress", target, source, port, protocol)

    def _open(self, direction: str, own: End, other: End, port: int, protocol: str) -> bool:
        mine = [one for one in self._policies if self._about(one, own, direction)]
        if not mine:
            return True
        rules, peers = ("egress", "to") if direction == "Egress" else ("ingress", "from")
        return any(
            self._peer(rule.get(peers), other, policy["metadata"]["namespace"]) and _port(rule, port, protocol)
            for policy in mine
            for rule in policy["spec"].get(rules) or ()
        )

    def _about(self, policy: Object, end: End, direction: str) -> bool:
        spec = policy["spec"]
        kinds = spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]
        here = end.namespace != "" and end.namespace == policy["metadata"]["namespace"]
        return here and direction in kinds and selects(spec["podSelector"], end.labels)

    def _peer(self, peers: Any, end: End, namespace: str) -> bool:
        return not peers or any(self._matches(peer, end, namespace) for peer in peers)

    def _matches(self, peer: Object, end: End, namespace: str) -> bool:
        if "ipBlock" in peer:
            address, block = ip_address(end.address), peer["ipBlock"]
            within = address in ip_network(block["cidr"])
            return within and not any(address in ip_network(one) for one in block.get("except") or ())
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
        one.get("protocol", "TCP") == protocol
        and one.get("port", port) <= port <= one.get("endPort", one.get("port", port))
        for one in ports
    )
