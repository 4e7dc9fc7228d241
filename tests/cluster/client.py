"""Test client of any cluster: kubectl with the administrator's rights."""

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.machines import ENVIRON, PATIENCE
from tests.waiting import until


class Client:
    """Client of the cluster of a kubeconfig; ``folder`` is for kubectl's cache."""

    def __init__(self, kubectl: Path, kubeconfig: Path, folder: Path) -> None:
        self.program = kubectl
        #: The administrator's kubeconfig. A test cluster's works on this machine and, in a Secret, in pods.
        self.kubeconfig = kubeconfig
        self.folder = folder

    def kubectl(self, *arguments: object, stdin: str | None = None, timeout: float = PATIENCE) -> str:
        """Run kubectl as the administrator and return what it printed."""
        command = [str(self.program), f"--kubeconfig={self.kubeconfig}", *(str(part) for part in arguments)]
        completed = subprocess.run(
            command,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            cwd=self.folder,
            env=ENVIRON | {"HOME": str(self.folder)},  # otherwise its cache would be in the user's home folder
        )
        if completed.returncode:
            raise RuntimeError(f"kubectl {' '.join(map(str, arguments))}: {completed.stdout}{completed.stderr}")
        return completed.stdout

    def apply(self, *objects: Any) -> None:
        """Create or update objects."""
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(document))

    def get(self, path: str) -> Any:
        """Return the API server's object at a path, or None."""
        try:
            return json.loads(self.kubectl("get", "--raw", path))
        except RuntimeError as error:
            if "(NotFound)" in str(error):
                return None
            raise

    def serves(self, group: str) -> bool:
        """Return whether an API group is served, such as that of an installed operator."""
        return self.get(f"/apis/{group}") is not None

    def launch_objects(self, namespace: str, *selection: str) -> list[str]:
        """Return the objects of launches in a namespace, including objects that the cluster created for them."""
        kinds = "jobs,pods,secrets,services,networkpolicies" + (",jobsets" if self.serves("jobset.x-k8s.io") else "")
        return self.kubectl("get", kinds, "-n", namespace, *selection, "-o", "name").split()

    def until(self, condition: Callable[[], bool], description: str, timeout: float = PATIENCE) -> None:
        """Wait for a condition."""
        until(condition, timeout, lambda: f"this does not hold: {description}\n{self.state()}")

    def rolled_out(self, namespace: str, deployment: str) -> None:
        """Wait until a Deployment has rolled out."""
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}"

        def available() -> bool:
            document = self.get(path) or {}
            return bool(document.get("status", {}).get("availableReplicas"))

        self.until(available, f"{deployment} is available")

    def state(self) -> str:
        """Return the state of the cluster for the message of a failed wait."""
        pods = self.kubectl("get", "nodes,pods", "--all-namespaces", "-o", "wide")
        events = self.kubectl("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp")
        return f"{pods}\n{events[-6000:]}"

    def import_image(self, archive: Path) -> None:
        """Import the images of an archive on every node."""
        raise NotImplementedError

    def jobset(self) -> None:
        """Ensure that JobSet runs."""
        raise NotImplementedError

    def trainer(self) -> None:
        """Ensure that Kubeflow Trainer runs."""
        raise NotImplementedError

    def mpi_operator(self) -> None:
        """Ensure that the MPI operator runs."""
        raise NotImplementedError


class UserCluster(Client):
    """A user's cluster. Its operators are installed already, otherwise the tests that need them fail with a message."""

    def __init__(self, kubectl: Path, kubeconfig: Path, folder: Path, *, importer: str = "") -> None:
        super().__init__(kubectl, kubeconfig, folder)
        self._importer = shlex.split(importer)

    def import_image(self, archive: Path) -> None:
        """Pass the archive to CLUSTER_IMPORT; without that command the images must be on the nodes already."""
        if self._importer:
            subprocess.run([*self._importer, archive], check=True, timeout=600)

    def jobset(self) -> None:
        """Check that JobSet is served."""
        self._must_serve("jobset.x-k8s.io")

    def trainer(self) -> None:
        """Check that Kubeflow Trainer is served."""
        self._must_serve("trainer.kubeflow.org")

    def mpi_operator(self) -> None:
        """Check that the MPI operator is served."""
        self._must_serve("kubeflow.org")

    def _must_serve(self, group: str) -> None:
        assert self.serves(group), f"{self.kubeconfig}: the cluster does not serve {group}"
