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
        """Switch it on for the first time; it joins as soon as it is ready."""
        self._on()
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

    def stop(self, *parts: str, kindly: bool = True) -> None:
        """Stop kubelet and containerd, or the named programs; running pods continue unsupervised."""
        for part in parts or ("kubelet", "containerd"):
            self._machine.end(part, kindly=kindly)

    def cut(self) -> None:
        """Cut its power: its pods, programs and network end at once."""
        self._machine.cut()

    def start(self) -> None:
        """Start its stopped programs, after a power cut all of them. Does not wait until it is ready."""
        if not self._machine.on:
            self._on()
        self._revive()

    def _revive(self) -> None:
        for part in PARTS:
            if not self._machine.runs(part):
                self._machine.resume(part)
                if part == "containerd":
                    self._wait_for_containerd()

    def ready(self) -> bool:
        """Return whether the cluster reports it as ready."""
        found = self._plane.request("GET", f"/api/v1/nodes?fieldSelector=metadata.name%3D{self.name}")["items"]
        conditions = found[0]["status"].get("conditions", []) if found else []
        return any(said["type"] == "Ready" and said["status"] == "True" for said in conditions)

    def wait(self, ready: bool = True, patience: float = PATIENCE) -> None:
        """Wait until the cluster reports it as ready, or as unready, which takes most of a minute.

        Programs that end meanwhile are restarted, as by an init system: a kubelet exits if containerd answers but is
        not quite ready.
        """

        def seen() -> bool:
            if self.ready() is ready:
                return True
            if ready and self._machine.on:
                self._revive()
            return False

        def failure() -> str:
            said = "\n".join(self._machine.said(part) for part in PARTS)
            return f"{self.name} does not become {'' if ready else 'un'}ready:\n{said}"

        until(seen, patience, failure)

    def offer(self, resources: Mapping[str, str]) -> None:
        """Set its capacity of extended resources. There is no device plugin; pods that request them are admitted."""
        capacity = {"status": {"capacity": dict(resources)}}
        path = f"/api/v1/nodes/{self.name}/status"
        self._plane.request("PATCH", path, capacity, kind="application/strategic-merge-patch+json")

    def import_image(self, archive: Path) -> None:
        """Import the images of an archive."""
        self.ctr("images", "import", archive)

    def images(self) -> set[str]:
        """Return the names of its images."""
        return set(self.ctr("images", "list", "-q").split())

    def kill(self, container: str, signal: int = 9) -> None:
        """Kill a container's first process directly, without Kubernetes; ``container`` is its id."""
        self.ctr("tasks", "kill", "-s", signal, container.removeprefix("containerd://"))

    def ctr(self, *arguments: object) -> str:
        """Run ctr on its containerd."""
        return self._machine.call("ctr", "-a", self._socket, "-n", "k8s.io", *arguments)

    def call(self, *command: object) -> str:
        """Run a program on it."""
        return self._machine.call(*command)

    def run(self, name: str, *command: object) -> None:
        """Start a background program on it."""
        self._machine.run(name, *command)

    def end(self, name: str) -> None:
        """Stop a background program."""
        self._machine.end(name)

    def said(self, part: str) -> str:
        """Return the end of a program's output."""
        return self._machine.said(part)

    def _on(self) -> None:
        self._machine.boot()
        connect_node(self._network, self._control, self.index, self._machine)

    def _wait_for_containerd(self) -> None:
        def failure() -> str:
            return f"containerd does not start: {self._machine.said('containerd')}"

        def answers() -> bool:
            try:
                self._machine.call("ctr", "-a", self._socket, "version")
            except RuntimeError:
                assert self._machine.runs("containerd"), failure()
                return False
            return True

        until(answers, PATIENCE, failure)
