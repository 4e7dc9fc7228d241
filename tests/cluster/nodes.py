"""A real node: containerd, kubelet and kube-proxy on a machine of its own, with pods that really run."""

from collections.abc import Mapping
from pathlib import Path

from tests.cluster import cgroups
from tests.cluster.control_plane import ControlPlane
from tests.cluster.machines import PATIENCE, Machine
from tests.cluster.network import Network, connect_node
from tests.cluster.settings import containerd_settings, kubelet_settings, network_settings, proxy_settings
from tests.waiting import until

#: What is stopped and started by name, in the order they start.
PARTS = ("containerd", "kubelet", "kube-proxy")


class Node:
    """One node; ``cgroup`` is the group that all its pods are in."""

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
        # what pods of the host's network ask; there is nothing beyond the cluster
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
        """Stop kubelet and containerd, or these parts; pods that run go on unwatched."""
        for part in parts or ("kubelet", "containerd"):
            self._machine.end(part, kindly=kindly)

    def cut(self) -> None:
        """Cut its power: its pods, its programs and its network are gone at once."""
        self._machine.cut()

    def start(self) -> None:
        """Start whatever of it was stopped, after a power cut all of it. Does not wait until it is ready again."""
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
        """Tell whether the cluster sees it ready."""
        found = self._plane.request("GET", f"/api/v1/nodes?fieldSelector=metadata.name%3D{self.name}")["items"]
        conditions = found[0]["status"].get("conditions", []) if found else []
        return any(said["type"] == "Ready" and said["status"] == "True" for said in conditions)

    def wait(self, ready: bool = True, patience: float = PATIENCE) -> None:
        """Wait until the cluster sees it ready, or that it is not; the latter takes it most of a minute.

        What ends while it comes up is started again, as an init system does: a kubelet gives up on a containerd that
        answers and is not quite ready.
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
        """Say that it has so many of some devices. Nobody hands them out, and pods that ask for some are admitted."""
        capacity = {"status": {"capacity": dict(resources)}}
        path = f"/api/v1/nodes/{self.name}/status"
        self._plane.request("PATCH", path, capacity, kind="application/strategic-merge-patch+json")

    def import_image(self, archive: Path) -> None:
        """Give it the images of an archive."""
        self.ctr("images", "import", archive)

    def images(self) -> set[str]:
        """Return the names of the images it has."""
        return set(self.ctr("images", "list", "-q").split())

    def kill(self, container: str, signal: int = 9) -> None:
        """Kill a container's first process behind Kubernetes' back; ``container`` is its id."""
        self.ctr("tasks", "kill", "-s", signal, container.removeprefix("containerd://"))

    def ctr(self, *arguments: object) -> str:
        """Ask its containerd."""
        return self._machine.call("ctr", "-a", self._socket, "-n", "k8s.io", *arguments)

    def call(self, *command: object) -> str:
        """Run a program on it."""
        return self._machine.call(*command)

    def run(self, name: str, *command: object) -> None:
        """Start a program on it that stays."""
        self._machine.run(name, *command)

    def end(self, name: str) -> None:
        """End such a program."""
        self._machine.end(name)

    def said(self, part: str) -> str:
        """Return the end of what a part of it printed."""
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
