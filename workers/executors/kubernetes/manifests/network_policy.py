"""Network policies of a launch: its pods reach the runner API, the cache service and DNS, a gang's pods each other.

All other traffic is denied in both directions: other tenants' pods, the object store, the API server, the cloud's
metadata address. The cluster's network plugin enforces policies; a plugin that does not still accepts the objects.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from workers.executors.kubernetes import names
from workers.executors.kubernetes.manifests.pod_spec import PART, PodSpecBuilder
from workers.executors.kubernetes.objects import LAUNCH
from workers.executors.kubernetes.options import KubernetesOptions

Object = dict[str, Any]

#: Selects the chart's pods that launches call; its stores, Redis and dispatchers have other components.
CALLED = {"key": "app.kubernetes.io/component", "operator": "In", "values": ["api", "runner-api", "envoy", "scs"]}
#: Private ranges, excluded for names outside the cluster: the cluster's and the site's own, and a cloud's metadata.
PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")
NAMESPACE = "kubernetes.io/metadata.name"


def policies(pods: PodSpecBuilder) -> list[Object]:
    """Return a launch's policies. They select pods by the launch's own label, so no other launch is affected."""
    launch, options = pods.launch, pods.options
    launch_pods = {"matchLabels": {LAUNCH: names.label(launch.id)}}
    services = [_dns(options), *_services(launch.url, options)]
    if launch.gang is None:
        return [_policy(pods, pods.name, launch_pods, egress=services)]
    peers = [{"podSelector": launch_pods}]
    between = _policy(pods, pods.name, launch_pods, ingress=[{"from": peers}], egress=[{"to": peers}, _dns(options)])
    if not pods.gang.attended:
        return [between]
    leader = {"matchLabels": {**launch_pods["matchLabels"], PART: "lead"}}
    return [between, _policy(pods, f"{pods.name}-lead", leader, egress=services)]


def _policy(
    pods: PodSpecBuilder, name: str, selector: Object, *, ingress: Sequence[Object] = (), egress: Sequence[Object]
) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": pods.labels},
        "spec": {
            "podSelector": selector,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": list(ingress),
            "egress": list(egress),
        },
    }


def _services(launch_url: str, options: KubernetesOptions) -> list[Object]:
    """Return the egress rules of a runner: to the runner API and to the nodes of the cache service."""
    urls = [options.runner_api_url or launch_url, *re.split(r"[\s,]+", options.scs.nodes.strip())]
    return [_rule_of(url) for url in urls if url]


def _dns(options: KubernetesOptions) -> Object:
    """Return the rule for the site's DNS servers only: a query to any other server could carry data out."""
    ports = [{"protocol": protocol, "port": port} for port in options.dns_ports for protocol in ("UDP", "TCP")]
    return {"to": [dict(peer) for peer in options.dns], "ports": ports}


def _rule_of(url: str) -> Object:
    """Return the egress rule for one address.

    For a Service of the cluster it selects the pods behind it, at any port: policies apply after the Service's address
    was translated. For a name outside the cluster a policy can restrict the port only, and exclude private ranges.
    """
    _, _, address = url.rpartition("=")  # a cache node may be prefixed with its zone
    parts = urlsplit(address if "//" in address else f"http://{address}")
    host = parts.hostname or ""
    port = parts.port or {"https": 443}.get(parts.scheme, 80)
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return {"to": [{"ipBlock": {"cidr": f"{ip}/{ip.max_prefixlen}"}}], "ports": _tcp(port)}
    labels = host.split(".")
    if len(labels) >= 3 and labels[2] == "svc":
        peer: Object = {"namespaceSelector": {"matchLabels": {NAMESPACE: labels[1]}}}
        peer |= {"podSelector": {"matchExpressions": [CALLED]}}
        return {"to": [peer]}
    return {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": list(PRIVATE)}}], "ports": _tcp(port)}


def _tcp(port: int) -> list[Object]:
    return [{"protocol": "TCP", "port": port}]
