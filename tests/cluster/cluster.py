"""A complete Kubernetes on this machine for one test session, started in seconds and removed completely."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.cluster import kwok, operators, records, tools
from tests.cluster.client import Client
from tests.cluster.control_plane import ApiError, ControlPlane
from tests.cluster.machines import PATIENCE, Machine
from tests.cluster.network import Network, connect_control
from tests.cluster.nodes import Node


class Cluster(Client):
    """A control plane and real nodes; a context manager. More nodes, operators, simulated nodes come on request.

    A node is unready after ``grace`` seconds without a heartbeat, and its pods are evicted after as many seconds again.
    Thousands of simulated nodes on a small machine need minutes.
    """

    def __init__(self, *, nodes: int = 1, fsync: bool = False, grace: int = 25) -> None:
        self._node_count, self._fsync, self._grace = nodes, fsync, grace
        self.nodes: list[Node] = []
        self._machines: list[Machine] = []
        self._images: list[Path] = []
        self._installed: set[str] = set()
        self._simulated_nodes = 0

    def __enter__(self) -> "Cluster":
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    # -- start and stop

    def up(self) -> None:
        """Start the control plane and the nodes, and wait until pods can run."""
        tools.install()
        self.programs = tools.tool("kubernetes")
        self._record = records.claim()
        try:
            self.folder = self._record.folder
            self.network = Network(self._record.number)
            self._control = Machine("control", self.folder / "control", tools.tool("probe"))
            self._machines.append(self._control)
            self._control.boot()
            connect_control(self.network, self._control)
            self.control_plane = ControlPlane(
                self.programs, self._control, self.network, fsync=self._fsync, grace=self._grace
            )
            super().__init__(self.programs / "kubectl", self.control_plane.kubeconfig, self.folder)
            self.control_plane.start()
            self._images += [tools.pause_image(), tools.probe_image()]
            self.grow(self._node_count)
            self.install("coredns", self._install_coredns)
            self.write_record()
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Stop all machines, and remove their remaining resources."""
        for machine in reversed(self._machines):
            machine.cut()
        self._record.release()

    def write_record(self, **more: Any) -> None:
        """Record the cluster's kubeconfig and nodes for `scripts/cluster status`."""
        self._record.write(kubeconfig=str(self.kubeconfig), nodes=[node.name for node in self.nodes], **more)

    # -- interface for tests

    @property
    def host_address(self) -> str:
        """Address at which pods reach processes of this machine that listen there or on every address."""
        return self.network.host

    def get(self, path: str) -> Any:
        """Return the API server's object at a path, or None."""
        try:
            return self.control_plane.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def node(self, index: int) -> Node:
        """Return a node, to be stopped and started; not the first node, which runs the cluster's own pods."""
        return self.nodes[index]

    def import_image(self, archive: Path) -> None:
        """Import the images of an archive on every node, also on nodes that join later."""
        if archive not in self._images:
            self._images.append(archive)
            for node in self.nodes:
                node.import_image(archive)

    def grow(self, count: int) -> list[Node]:
        """Ensure that there are at least this many real nodes, all ready, and return them."""
        new = range(len(self.nodes), count)
        for index in new:
            machine = Machine(f"node-{index}", self.folder / f"node-{index}", tools.tool("probe"))
            self._machines.append(machine)
            cgroup = f"{self._record.cgroup}/{machine.name}"
            node = Node(index, machine, self._control, self.control_plane, self.network, self.programs, cgroup)
            self.nodes.append(node)
            node.boot()
            for archive in self._images:
                node.import_image(archive)
        for index in new:
            self.nodes[index].wait()
        return self.nodes[:count]

    def jobset(self) -> None:
        """Ensure that JobSet runs and answers: it may have been stopped since its installation."""
        self.install("jobset", self._install_jobset)
        metadata = {"generateName": "probe-", "namespace": "default"}
        document = {"apiVersion": operators.JOBSETS, "kind": "JobSet", "metadata": metadata, "spec": {}}
        self.until(lambda: self._accepts(document), "JobSet's webhooks answer")

    def trainer(self) -> None:
        """Ensure that Kubeflow Trainer runs and answers, and JobSet, which it needs."""
        self.jobset()
        self.install("trainer", self._install_trainer)
        self.until(lambda: self._accepts(operators.training_runtime("probe")), "the trainer's webhooks answer")

    def mpi_operator(self) -> None:
        """Ensure that the MPI operator runs; it has no webhooks, and restarts after a lost leader election."""
        self.install("mpi-operator", self._install_mpi_operator)
        self.rolled_out("mpi-operator", "mpi-operator")

    def kueue(self) -> None:
        """Ensure that Kueue runs and answers, and JobSet, which it manages. Kueue stays installed."""
        self.jobset()
        self.install("kueue", self._install_kueue)
        self.until(lambda: self._accepts(operators.flavor("probe")), "Kueue's webhooks answer")

    def kwok(self, count: int, *, lasting: bool = False) -> None:
        """Ensure that there are at least this many simulated nodes, all ready; see `kwok.stages` for ``lasting``."""
        self.install("kwok", lambda: self._install_kwok(lasting))
        if count > self._simulated_nodes:
            self.kubectl("create", "-f", "-", stdin=kwok.nodes(self._simulated_nodes, count), timeout=600)
            self._simulated_nodes = count
            self.until(
                lambda: self._ready_simulated_nodes() >= count,
                f"{count} simulated nodes are ready",
                max(PATIENCE, count / 10),
            )

    def remove_kwok(self) -> None:
        """Remove the simulated nodes: a thousand of them cost a third of a processor."""
        if self._simulated_nodes:
            self._control.end("kwok")
            self.control_plane.request("DELETE", "/api/v1/nodes?labelSelector=type%3Dkwok", timeout=PATIENCE)
            self.until(lambda: self._ready_simulated_nodes() == 0, "the simulated nodes are deleted")
            self._installed.discard("kwok")
            self._simulated_nodes = 0

    # -- installation

    def install(self, name: str, installation: Callable[[], None]) -> None:
        """Install a component once."""
        if name not in self._installed:
            installation()
            self._installed.add(name)

    def _install_coredns(self) -> None:
        self.nodes[0].import_image(tools.coredns_image())
        self.apply(*operators.coredns(self.network))
        self.rolled_out("kube-system", "coredns")

    def _install_jobset(self) -> None:
        self.nodes[0].import_image(tools.jobset_image())
        self._apply_kustomization(operators.jobset(self._empty_folder("jobset")))
        self.rolled_out("jobset-system", "jobset-controller-manager")

    def _accepts(self, document: dict[str, Any]) -> bool:
        try:
            self.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(document))
        except RuntimeError as error:
            if "failed calling webhook" in str(error):
                return False
            raise
        return True

    def _install_trainer(self) -> None:
        self.nodes[0].import_image(tools.trainer_image())
        self._apply_kustomization(operators.trainer(self._empty_folder("trainer")))
        self.rolled_out("kubeflow-system", "kubeflow-trainer-controller-manager")

    def _install_mpi_operator(self) -> None:
        self.nodes[0].import_image(tools.mpi_operator_image())
        self._apply_kustomization(operators.mpi_operator(self._empty_folder("mpi-operator")))

    def _install_kueue(self) -> None:
        self.nodes[0].import_image(tools.kueue_image())
        self._apply_kustomization(operators.kueue(self._empty_folder("kueue")))
        self.rolled_out("kueue-system", "kueue-controller-manager")

    def _install_kwok(self, lasting: bool) -> None:
        settings = self.folder / "kwok.yaml"
        settings.write_text(kwok.stages(lasting=lasting))
        admin = self.control_plane.authority.kubeconfig(self.control_plane.server, "kwok", group="system:masters")
        self._control.run("kwok", *kwok.arguments(admin, settings, self.network.simulated_pods))

    def _apply_kustomization(self, folder: Path) -> None:
        self.kubectl("apply", "--server-side", "--force-conflicts", "--kustomize", folder)

    def _empty_folder(self, name: str) -> Path:
        folder = self.folder / "manifests" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def _ready_simulated_nodes(self) -> int:
        # a single list request: waiting for each node in turn takes minutes
        nodes = self.control_plane.request("GET", "/api/v1/nodes?labelSelector=type%3Dkwok&resourceVersion=0")["items"]
        return sum(
            condition["type"] == "Ready" and condition["status"] == "True"
            for node in nodes
            for condition in node["status"].get("conditions", [])
        )
