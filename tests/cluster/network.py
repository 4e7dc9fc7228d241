"""The network of a test cluster: its addresses, and the virtual cables between its machines and the real machine."""

import ipaddress
import json
import subprocess
from dataclasses import dataclass

from tests.cluster.machines import Machine

#: Most clusters on a machine, and most nodes of a cluster.
CLUSTERS, NODES = 8, 8


@dataclass(frozen=True)
class Network:
    """Addresses of the cluster with this number."""

    number: int

    @property
    def wire(self) -> str:
        """The real machine's end of the cable."""
        return f"windtunnel{self.number}"

    @property
    def machines(self) -> str:
        """Network of the machines."""
        return f"10.200.{self.number}.0/24"

    @property
    def pods(self) -> str:
        """Network of all pods."""
        return f"10.{208 + self.number}.0.0/16"

    @property
    def services(self) -> str:
        """Network of Services."""
        return f"10.{224 + self.number}.0.0/16"

    @property
    def host(self) -> str:
        """Address at which pods reach processes of the real machine (that listen there, or on every address)."""
        return f"10.200.{self.number}.1"

    @property
    def control(self) -> str:
        """Address of the API server."""
        return f"10.200.{self.number}.2"

    @property
    def first_service(self) -> str:
        """Address of the API server's Service."""
        return f"10.{224 + self.number}.0.1"

    @property
    def dns(self) -> str:
        """Address of the DNS Service."""
        return f"10.{224 + self.number}.0.10"

    @property
    def simulated_pods(self) -> str:
        """Network of the pods of simulated nodes."""
        return f"10.{208 + self.number}.128.1/17"

    def node(self, index: int) -> str:
        """Address of a node."""
        return f"10.200.{self.number}.{10 + index}"

    def pods_of(self, index: int) -> str:
        """Network of a node's pods."""
        return f"10.{208 + self.number}.{index}.0/24"

    @property
    def routes(self) -> list[str]:
        """Commands that set a machine's routes to every pod."""
        return [f"route add {self.pods_of(index)} via {self.node(index)}" for index in range(NODES)]

    def free(self) -> bool:
        """Return whether none of these addresses is in use on the real machine."""
        networks = [ipaddress.ip_network(text) for text in (self.machines, self.pods, self.services)]
        routes = json.loads(subprocess.run(["ip", "-j", "-4", "route"], check=True, capture_output=True).stdout or "[]")
        used = [ipaddress.ip_network(route["dst"]) for route in routes if route["dst"] != "default"]
        return not any(network.overlaps(other) for network in networks for other in used)


def connect_control(network: Network, control: Machine) -> None:
    """Make the control plane's machine the switch of all others, and connect it to the real machine."""
    batch(f"link add {network.wire} type veth peer name host netns {control.pid}")
    control.call(
        "ip",
        "-batch",
        "-",
        stdin="\n".join(
            [
                "link add switch type bridge",
                "link set host master switch up",
                f"addr add {network.control}/24 dev switch",
                "link set switch up",
                *network.routes,
            ]
        ),
    )
    batch(
        f"addr add {network.host}/24 dev {network.wire}",
        f"link set {network.wire} up",
        *network.routes,
        # the first node's kube-proxy forwards to any Service
        f"route add {network.services} via {network.node(0)}",
    )


def connect_node(network: Network, control: Machine, index: int, node: Machine) -> None:
    """Connect a node to the switch."""
    batch(f"link add node{index} netns {control.pid} type veth peer name eth0 netns {node.pid}")
    control.call("ip", "link", "set", f"node{index}", "master", "switch", "up")
    routes = [route for route in network.routes if network.pods_of(index) not in route]
    settings = ("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables")
    node.call("sh", "-c", "; ".join(f"echo 1 >/proc/sys/{setting}" for setting in settings))
    node.call(
        "ip",
        "-batch",
        "-",
        stdin="\n".join(
            [
                f"addr add {network.node(index)}/24 dev eth0",
                "link set eth0 up",
                *routes,
                # kube-proxy redirects these packets, but a route must exist first
                f"route add {network.services} dev eth0",
            ]
        ),
    )


def batch(*commands: str) -> None:
    """Change the real machine's network: add the cluster's device and its routes."""
    script = "\n".join(commands)
    completed = subprocess.run(["ip", "-batch", "-"], input=script, capture_output=True, text=True)
    if completed.returncode:
        raise RuntimeError(f"{script}\n{completed.stderr}")
