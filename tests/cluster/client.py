"""What tests may ask of any cluster, whoever made it: through kubectl, as its administrator."""

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.machines import ENVIRON, PATIENCE
from tests.waiting import until


class Client:
    """A cluster seen through its kubeconfig; ``folder`` is for what kubectl keeps."""

    def __init__(self, kubectl: Path, kubeconfig: Path, folder: Path) -> None:
        self.program = kubectl
        #: The administrator's. Of a cluster of our own it holds good on this machine and, read into a secret, in pods.
        self.kubeconfig = kubeconfig
        self.folder = folder

    def kubectl(self, *arguments: object, given: str | None = None, timeout: float = PATIENCE) -> str:
        """Run kubectl as the administrator and return what it printed."""
        command = [str(self.program), f"--kubeconfig={self.kubeconfig}", *(str(part) for part in arguments)]
        answer = subprocess.run(
            command,
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            cwd=self.folder,
            env=ENVIRON | {"HOME": str(self.folder)},  # else it keeps a cache at ours
        )
        if answer.returncode:
            raise RuntimeError(f"kubectl {' '.join(map(str, arguments))}: {answer.stdout}{answer.stderr}")
        return answer.stdout

    def apply(self, *objects: Any) -> None:
        """Create objects, or change them to be like this."""
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=json.dumps(document))

    def get(self, path: str) -> Any:
        """Return what the API server has at a path; None if nothing."""
        try:
            return json.loads(self.kubectl("get", "--raw", path))
        except RuntimeError as error:
            if "(NotFound)" in str(error):
                return None
            raise

    def serves(self, group: str) -> bool:
        """Tell whether a group of the API is there, as those of operators are once they are installed."""
        return self.get(f"/apis/{group}") is not None

    def launched(self, namespace: str, *selection: str) -> list[str]:
        """Return what a namespace has of all that launches are made of, directly or by the cluster."""
        kinds = "jobs,pods,secrets,services,networkpolicies" + (",jobsets" if self.serves("jobset.x-k8s.io") else "")
        return self.kubectl("get", kinds, "-n", namespace, *selection, "-o", "name").split()

    def until(self, so: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
        """Wait until it is so."""
        until(so, patience, lambda: f"not so: {what}\n{self.state()}")

    def rolled_out(self, namespace: str, deployment: str) -> None:
        """Wait until a deployment is as it should be."""
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}"

        def so() -> bool:
            found = self.get(path) or {}
            return bool(found.get("status", {}).get("availableReplicas"))

        self.until(so, f"{deployment} is available")

    def state(self) -> str:
        """Return what there is to see when something does not come about."""
        pods = self.kubectl("get", "nodes,pods", "--all-namespaces", "-o", "wide")
        events = self.kubectl("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp")
        return f"{pods}\n{events[-6000:]}"

    def import_image(self, archive: Path) -> None:
        """Give its nodes the images of an archive."""
        raise NotImplementedError

    def jobset(self) -> None:
        """See to it that JobSet runs."""
        raise NotImplementedError

    def trainer(self) -> None:
        """See to it that Kubeflow Trainer runs."""
        raise NotImplementedError

    def mpi_operator(self) -> None:
        """See to it that the MPI operator runs."""
        raise NotImplementedError


class Borrowed(Client):
    """Somebody's cluster. It has its operators already, or the tests that need them fail and say so."""

    def __init__(self, kubectl: Path, kubeconfig: Path, folder: Path, *, importer: str = "") -> None:
        super().__init__(kubectl, kubeconfig, folder)
        self._importer = shlex.split(importer)

    def import_image(self, archive: Path) -> None:
        """Hand the archive to the command that was named for it; without one its images are taken to be there."""
        if self._importer:
            subprocess.run([*self._importer, archive], check=True, timeout=600)

    def jobset(self) -> None:
        """See that JobSet is served there."""
        self._must_serve("jobset.x-k8s.io")

    def trainer(self) -> None:
        """See that Kubeflow Trainer is served there."""
        self._must_serve("trainer.kubeflow.org")

    def mpi_operator(self) -> None:
        """See that the MPI operator is served there."""
        self._must_serve("kubeflow.org")

    def _must_serve(self, group: str) -> None:
        assert self.serves(group), f"{self.kubeconfig}: that cluster does not serve {group}"
