"""What a launch's pods may reach: the runner API, the cache and DNS; a gang's pods each other; nothing else.

Whatever is not named here is refused in both directions: other tenants' pods, the store, the API server, and a cloud's
metadata address. A cluster's network plugin has to enforce it; one that does not accepts it all the same.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from core.domain.launches import Launch
from workers.executors.kubernetes import gangs, names
from workers.executors.kubernetes.manifests import pods
from workers.executors.kubernetes.options import KubernetesOptions

Object = dict[str, Any]

#: What the chart's pods that launches call are labelled with; its stores, Redis and dispatchers are not among them.
CALLED = {"key": "app.kubernetes.io/component", "operator": "In", "values": ["api", "runner-api", "envoy", "scs"]}
#: What a name outside the cluster does not stand for: the cluster itself, the site's own, a cloud's metadata.
PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")
NAMESPACE = "kubernetes.io/metadata.name"


def policies(launch: Launch, options: KubernetesOptions) -> list[Object]:
    """Return a launch's policies: its pods are named by its own label, so no other launch has any part in them."""
    launch_pods = {"matchLabels": {"windtunnel/launch": names.label(launch.id)}}
    if launch.gang is None:
        return [
            _policy(launch, options, names.owner(launch.id), launch_pods, ingress=[], egress=_services(launch, options))
        ]
    peers = [{"podSelector": launch_pods}]
    between = _policy(
        launch,
        options,
        names.owner(launch.id),
        launch_pods,
        ingress=[{"from": peers}],
        egress=[{"to": peers}, _dns(options)],
    )
    lead = {"matchLabels": {**launch_pods["matchLabels"], pods.PART: "lead"}}
    calls = _policy(
        launch, options, f"{names.owner(launch.id)}-lead", lead, ingress=[], egress=_services(launch, options)
    )
    return [between, calls] if gangs.has_runner(launch) else [between]


def _policy(
    launch: Launch,
    options: KubernetesOptions,
    name: str,
    pods_of: Object,
    *,
    ingress: Sequence[Object],
    egress: Sequence[Object],
) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": pods.labels(launch, options)},
        "spec": {
            "podSelector": pods_of,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": list(ingress),
            "egress": list(egress),
        },
    }


def _services(launch: Launch, options: KubernetesOptions) -> list[Object]:
    urls = [options.runner_api_url or launch.url, *re.split(r"[\s,]+", options.scs.nodes.strip())]
    return [_dns(options), *(_peer_rule(url) for url in urls if url)]


def _dns(options: KubernetesOptions) -> Object:
    """Names are asked of those servers only that a site has for it: a name can carry words to any other."""
    ports = [{"protocol": protocol, "port": port} for port in options.dns_ports for protocol in ("UDP", "TCP")]
    return {"to": [dict(peer) for peer in options.dns], "ports": ports}


def _peer_rule(url: str) -> Object:
    """Return a rule for one address.

    Of a service in the cluster the pods behind it are named, at any port: a policy holds after the service's address
    was turned into theirs. Of a name outside the cluster a policy can say nothing but its port.
    """
    _, _, plain = url.rpartition("=")  # a node of the cache may be told with its zone
    parts = urlsplit(plain if "//" in plain else f"http://{plain}")
    host = parts.hostname or ""
    port = parts.port or {"https": 443}.get(parts.scheme, 80)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return {"to": [{"ipBlock": {"cidr": f"{address}/{address.max_prefixlen}"}}], "ports": _tcp(port)}
    words = host.split(".")
    if len(words) >= 3 and words[2] == "svc":
        where: Object = {"namespaceSelector": {"matchLabels": {NAMESPACE: words[1]}}}
        where |= {"podSelector": {"matchExpressions": [CALLED]}}
        return {"to": [where]}
    return {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": list(PRIVATE)}}], "ports": _tcp(port)}


def _tcp(port: int) -> list[Object]:
    return [{"protocol": "TCP", "port": port}]
