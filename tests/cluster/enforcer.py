"""Enforcement of NetworkPolicies on the tests' nodes: kube-router's firewall, beside the kubelet."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.cluster import Cluster
from tests.cluster.tools import tool

NAME = "kube-router"
#: Removes kube-router's rules; its own cleanup fails after it ran as a firewall only.
CLEAR = "iptables-save | grep -vE 'KUBE-(ROUTER|POD-FW|NWPLCY)' | iptables-restore && ipset destroy"


@contextmanager
def enforced(cluster: Cluster) -> Iterator[None]:
    """Enforce policies on all present nodes while the block runs, but not on nodes that join during the block."""
    program = tool(NAME)
    nodes, control_plane, network = list(cluster.nodes), cluster.control_plane, cluster.network
    administrator = control_plane.authority.kubeconfig(control_plane.server, NAME, group="system:masters")
    for node in nodes:
        node.run(
            NAME,
            program,
            f"--kubeconfig={administrator}",
            f"--hostname-override={node.name}",
            f"--service-cluster-ip-range={network.services}",
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            "--enable-cni=false",
            "--health-port=0",
            "--metrics-port=0",
        )
    try:
        yield
    finally:
        for node in nodes:
            node.end(NAME)
            node.call("sh", "-c", CLEAR)
