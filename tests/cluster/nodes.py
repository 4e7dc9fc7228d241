"""A real node: containerd, kubelet and kube-proxy on a machine of its own, with real pods."""

from collections.abc import Mapping
from pathlib import Path

from tests.cluster import cgroups
from tests.cluster.control_plane import ControlPlane
from tests.cluster.machines import PATIENCE, Machine
from tests.cluster.network import Network, connect_node
from tests.cluster.settings import containerd_settings, kubelet_settings, network_settings, proxy_settings
from tests.waiting import until

#: Programs that can be stopped and started by name, in the order of their start.
PARTS = ("containerd", "kubelet", "kube-proxy")


class Node:
    """A node; ``cgroup`` is the group of all its pods."""

    def __init__(
        self,
        index: int,
        machine: Machine,
        control: Machine,
        plane: ControlPlane,
        network: Network,
        programs: Path,
        cgroup: str,
    ) -> None:
        self.index, self.name, self.address = index, machine.name, network.node(index)
        self._machine, self._control, self._plane, self._network = machine, control, plane, network
        self._programs, self._cgroup = programs, cgroup
        self._socket = machine.folder / "containerd.sock"

    def boot(self) -> None:
        """Switch the node on for the first time; it joins the cluster as soon as it is ready."""
        self._boot_machine()
        folder, name = self._machine.folder, self.name
        cgroups.make(self._cgroup)
        (folder / "cni").mkdir()
        (folder / "cni" / "10-pods.conflist").write_text(network_settings(self._network, self.index, folder))
        (folder / "containerd.toml").write_text(containerd_settings(folder, self._socket))
        # DNS of pods in the host's network; names outside of the cluster do not exist
        (folder / "resolv.conf").write_text(f"nameserver {self._network.dns}\n")
        kubelet = kubelet_settings(self._network, folder, self._socket, self._plane.authority.path, self._cgroup)
        (folder / "kubelet.json").write_text(kubelet)
        authority, server = self._plane.authority, self._plane.server
        proxy = authority.kubeconfig(server, "system:kube-proxy")
        (folder / "kube-proxy.json").write_text(proxy_settings(self._network, name, proxy))
        self._machine.run("containerd", "containerd", "-c", folder / "containerd.toml")
        self._wait_for_containerd()
        self._machine.run(
            "kubelet",
            self._programs / "kubelet",
            f"--config={folder / 'kubelet.json'}",
            f"--kubeconfig={authority.kubeconfig(server, f'system:node:{name}', group='system:nodes')}",
            f"--root-dir={folder / 'kubelet'}",
            f"--cert-dir={folder / 'kubelet-pki'}",
            f"--hostname-override={name}",
            f"--node-ip={self.address}",
            f"--node-labels=topology.kubernetes.io/zone=zone-{self.index}",
        )
        self._machine.run("kube-proxy", self._programs / "kube-proxy", f"--config={folder / 'kube-proxy.json'}")

    def stop(self, *parts: str, graceful: bool = True) -> None:
        """Stop kubelet and containerd, or the named programs; running pods continue unsupervised."""
        for part in parts or ("kubelet", "containerd"):
            self._machine.end(part, graceful=graceful)

    def cut(self) -> None:
        """Cut the node's power: its pods, programs and network end at once."""
        self._machine.cut()

    def start(self) -> None:
        """Start the node's stopped programs, after a power cut all of them. Does not wait until the node is ready."""
        if not self._machine.on:
            self._boot_machine()
        self._restart_ended_programs()

    def _restart_ended_programs(self) -> None:
        for part in PARTS:
            if not self._machine.runs(part):
                self._machine.resume(part)
                if part == "containerd":
                    self._wait_for_containerd()

    def ready(self) -> bool:
        """Return whether the cluster reports the node as ready."""
        nodes = self._plane.request("GET", f"/api/v1/nodes?fieldSelector=metadata.name%3D{self.name}")["items"]
        conditions = nodes[0]["status"].get("conditions", []) if nodes else []
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    def wait(self, ready: bool = True, timeout: float = PATIENCE) -> None:
        """Wait until the cluster reports the node as ready, or as unready, which takes most of a minute.

        Programs that end meanwhile are restarted, as by an init system: a kubelet exits if containerd answers but is
        not quite ready.
        """

        def reported() -> bool:
            if self.ready() is ready:
                return True
            if ready and self._machine.on:
                self._restart_ended_programs()
            return False

        def failure() -> str:
            logs = "\n".join(self._machine.log_tail(part) for part in PARTS)
            return f"{self.name} does not become {'' if ready else 'un'}ready:\n{logs}"

        until(reported, timeout, failure)

    def offer(self, resources: Mapping[str, str]) -> None:
        """Set the node's capacity of extended resources; pods that request them need no device plugin."""
        capacity = {"status": {"capacity": dict(resources)}}
        path = f"/api/v1/nodes/{self.name}/status"
        self._plane.request("PATCH", path, capacity, kind="application/strategic-merge-patch+json")

    def import_image(self, archive: Path) -> None:
        """Import the images of an archive."""
        self.ctr("images", "import", archive)

    def images(self) -> set[str]:
        """Return the names of the node's images."""
        return set(self.ctr("images", "list", "-q").split())

    def kill(self, container: str, signal: int = 9) -> None:
        """Kill a container's first process directly, without Kubernetes; ``container`` is its id."""
        self.ctr("tasks", "kill", "-s", signal, container.removeprefix("containerd://"))

    def ctr(self, *arguments: object) -> str:
        """Run ctr on the node's containerd."""
        return self._machine.call("ctr", "-a", self._socket, "-n", "k8s.io", *arguments)

    def call(self, *command: object) -> str:
        """Run a program on the node."""
        return self._machine.call(*command)

    def run(self, name: str, *command: object) -> None:
        """Start a background program on the node."""
        self._machine.run(name, *command)

    def end(self, name: str) -> None:
        """Stop a background program."""
        self._machine.end(name)

    def log_tail(self, part: str) -> str:
        """Return the end of a program's output."""
        return self._machine.log_tail(part)

    def _boot_machine(self) -> None:
        self._machine.boot()
        connect_node(self._network, self._control, self.index, self._machine)

    def _wait_for_containerd(self) -> None:
        def failure() -> str:
            return f"containerd does not start: {self._machine.log_tail('containerd')}"

        def answers() -> bool:
            try:
                self._machine.call("ctr", "-a", self._socket, "version")
            except RuntimeError:
                assert self._machine.runs("containerd"), failure()
                return False
            return True

        until(answers, PATIENCE, failure)
