"""The platform on a cluster, as users have it: its chart is installed, its API called, its simulations followed."""

import contextlib
import json
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.cached import PLATFORM_IMAGES, image, tool
from tests.chart.rendering import CHART
from tests.cluster import stores
from tests.cluster.client import Client
from tests.cluster.machines import ENVIRON, PATIENCE
from tests.ports import free_ports
from tests.waiting import until

ROOT = Path(__file__).parents[2]
RELEASE, NAMESPACE, PROJECT = "windtunnel", "windtunnel", "windtunnel-default"
FINAL = frozenset({"succeeded", "failed", "errored", "cancelled"})
#: Install the release or upgrade it to the values.
UPGRADE = ("upgrade", "--install", RELEASE, str(CHART), "--values", "-", "--timeout", "10m")
#: Time limit of helm in seconds; helm's own limit is lower.
HELM = 700.0
#: Seconds until `kubectl port-forward` listens.
LISTENS = 20.0
#: Small requests: each of the tests' nodes reports the whole machine's resources.
SHARE = {"cpu": "20m", "memory": "1Gi"}


def values(server: str, *, trial: bool = True, **changes: Any) -> dict[str, Any]:
    """Return values of the chart: small resources; a trial without a token."""
    little = {"requests": {"cpu": "10m", "memory": "64Mi"}}
    repository, _, tag = server.rpartition(":")
    told: dict[str, Any] = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "settings": {"names": ["karrozzeria"], "leaseTtl": 5},
        "api": {"replicas": 2, "resources": little, "service": {"port": 5000}},
        "runnerApi": {"replicas": 1, "resources": little},
        "dispatch": {"replicas": 2, "resources": little},
        "jobs": {"resources": little},
        "scs": {"resources": little, "envoy": {"enabled": False}},
        "executors": {
            "cluster": {
                "workers": 2,
                "grace": 20,
                "options": {
                    "runner": SHARE | {"memory": "256Mi"},
                    "evaluator": SHARE,
                    "model_server": SHARE,
                    "patience": 20,
                },
            }
        },
    }
    if trial:
        told |= {"trial": True, "settings": told["settings"] | {"anonymous": True}}
        told |= {"bundled": {name: part | {"resources": little} for name, part in stores.values().items()}}
    return told | changes


def bring_images(cluster: Client, folder: Path, wanted: Iterable[str] = PLATFORM_IMAGES) -> dict[str, str]:
    """Import the platform's images and the stores' image on the nodes; return their names. The folder must stay."""
    found = {}
    for name in wanted:
        made = image(name)
        found[name] = made.reference
        # Nodes that join later get the same image, even if a newer image was built meanwhile.
        kept = folder / made.archive.name
        kept.hardlink_to(made.archive)
        cluster.import_image(kept)
    cluster.import_image(stores.image(folder))
    return found


class Installed:
    """A release of the chart, reached by `kubectl port-forward`, which is restarted when its pod ends.

    ``images``: the imported images, by name.
    """

    def __init__(
        self,
        cluster: Client,
        folder: Path,
        images: Mapping[str, str],
        *,
        namespace: str = NAMESPACE,
        project: str = PROJECT,
        token: str = "",
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.images = images
        self.namespace, self.project = namespace, project
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.port = free_ports(1)[0]
        self._forward: subprocess.Popen[bytes] | None = None
        self._values: dict[str, Any] = {}

    # -- life

    def helm(self, *arguments: str) -> str:
        """Run helm as the administrator."""
        done = self.ask_helm(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask_helm(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run helm, which may fail; the release's values are its standard input where it reads values."""
        command = [tool("helm"), f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={self.namespace}", *arguments]
        return subprocess.run(
            command,
            input=json.dumps(self._values),
            capture_output=True,
            text=True,
            timeout=HELM,
            env=ENVIRON | {"HOME": str(self.folder)},
        )

    def prepare(self, **changes: Any) -> None:
        """Create its namespace, and set the values."""
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": restricted}}
        self.cluster.apply(space)
        self._values = values(self.images["server"], **changes)

    def tell(self, **changes: Any) -> None:
        """Change the values of the next upgrade."""
        self._values = self._values | changes

    def install(self, **changes: Any) -> None:
        """Install the release and wait until the API answers."""
        self.prepare(**changes)
        with self.only("node-0"):  # a trial's data is lost with its node, and tests cut the power of other nodes
            self.upgrade()
            self.rolled()
        self.until(lambda: self.ready, "the API answers")

    def rolled(self) -> None:
        """Wait until all pods of its roles have the latest values."""
        for role in ("api", "runner-api", "dispatch", "jobs"):
            status = ["rollout", "status", "-n", self.namespace, f"deployment/{RELEASE}-{role}"]
            self.cluster.kubectl(*status, f"--timeout={PATIENCE:.0f}s", timeout=PATIENCE + 60)

    @contextlib.contextmanager
    def only(self, name: str) -> Iterator[None]:
        """Cordon all nodes but one while the block runs; a user's cluster is left unchanged."""
        nodes = self.nodes()
        others = [one for one in nodes if one != name] if name in nodes else []
        for other in others:
            self.cluster.kubectl("cordon", other)
        try:
            yield
        finally:
            for other in others:
                self.cluster.kubectl("uncordon", other)

    def nodes(self) -> list[str]:
        """Return the names of the nodes."""
        return [one.removeprefix("node/") for one in self.cluster.kubectl("get", "nodes", "-o", "name").split()]

    def upgrade(self) -> None:
        """Upgrade the release to its values, also after some of its objects were deleted."""
        self.helm(*UPGRADE)

    def option(self, **options: Any) -> None:
        """Change options of its executor, and wait until the roles have restarted with them."""
        executors = self._values["executors"]
        cluster = executors["cluster"]
        changed = cluster | {"options": cluster["options"] | options}
        self.tell(executors=executors | {"cluster": changed})
        self.upgrade()
        self.rolled()
        self.until(lambda: self.ready, "the API answers")

    def waiting(self) -> list[str]:
        """Return the warm launches whose pods are ready."""
        selector = ["-n", self.project, "-l", "windtunnel/warm", "-o", "json"]
        found = json.loads(self.cluster.kubectl("get", "jobsets", *selector))["items"]
        return [
            one["metadata"]["labels"]["windtunnel/launch"]
            for one in found
            if any(group.get("ready") for group in one.get("status", {}).get("replicatedJobsStatus", []))
        ]

    def uninstall(self) -> None:
        """Uninstall the release, and delete everything that it created."""
        self._hang_up()
        self.helm("uninstall", RELEASE, "--ignore-not-found")
        for namespace in (self.project, self.namespace):
            self.cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")

    def settle(self) -> None:
        """Ensure that JobSet answers: an outage of the API server stops it, and it restarts slowly."""
        path = "/apis/apps/v1/namespaces/jobset-system/deployments/jobset-controller-manager"
        if not (self.cluster.get(path) or {}).get("status", {}).get("availableReplicas"):
            self.cluster.kubectl("delete", "pods", "-n", "jobset-system", "--all", "--force", "--grace-period=0")
        self.cluster.rolled_out("jobset-system", "jobset-controller-manager")

    # -- as a user

    @property
    def url(self) -> str:
        """URL of the API."""
        if self._forward is None or self._forward.poll() is not None:
            served = self._values["api"].get("service", {}).get("port", 80)
            command = ["port-forward", "-n", self.namespace, f"service/{RELEASE}-api", f"{self.port}:{served}"]
            kubectl = [str(self.cluster.program), f"--kubeconfig={self.cluster.kubeconfig}", *command]
            null = subprocess.DEVNULL
            environ = ENVIRON | {"HOME": str(self.folder)}
            self._forward = subprocess.Popen(kubectl, stdin=null, stdout=null, stderr=null, env=environ)
            self._listened()
        return f"http://127.0.0.1:{self.port}"

    def _listened(self) -> None:
        """Wait until the forward listens or has ended: an earlier request would take it for ended."""

        def settled() -> bool:
            if self._forward is None or self._forward.poll() is not None:
                return True
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0):
                return True
            return False

        with contextlib.suppress(AssertionError):  # the next request fails, and replaces the forward
            until(settled, LISTENS)

    @property
    def ready(self) -> bool:
        """Whether the API is ready."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5.0).status_code == 200
        except httpx.HTTPError:
            self._hang_up()
            return False

    def _hang_up(self) -> None:
        """Stop a forward whose pod may be gone: kubectl stays with the pod that it chose."""
        if self._forward is not None:
            self._forward.kill()
            self._forward.wait()

    def get(self, path: str) -> Any:
        """Send a request, and once more if the forward has just ended."""

        def answered() -> httpx.Response | None:
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(self.url + path, headers=self.headers, timeout=30.0)
                if answer.status_code < 500:
                    return answer
            self._hang_up()
            return None

        answer = until(answered, 180.0, lambda: f"{path} is not answered\n{self.cluster.state()}")
        assert answer is not None
        answer.raise_for_status()
        return answer.json()

    def submit(self, **asked: Any) -> str:
        """Submit a simulation and return its id."""
        self.until(lambda: self.ready, "the API answers")
        answer = httpx.post(f"{self.url}/v1/simulations", json=asked, headers=self.headers, timeout=60.0)
        assert answer.status_code == 201, answer.text
        id: str = answer.json()["id"]
        return id

    def cancel(self, id: str) -> None:
        """Cancel a simulation."""
        self.until(lambda: self.ready, "the API answers")
        httpx.post(f"{self.url}/v1/simulations/{id}/cancel", timeout=60.0)

    def ended(self, id: str, patience: float = 180.0) -> Any:
        """Wait for the end of a simulation and return it."""
        found: dict[str, Any] = {}

        def ended() -> bool:
            found.update(self.get(f"/v1/simulations/{id}"))
            return found["state"] in FINAL

        until(ended, patience, lambda: f"{found}\n{self.messages(id)}\n{self.cluster.state()}")
        return found

    def results(self, id: str) -> list[Any]:
        """Return all results, in the order of their tasks."""

        def answered() -> httpx.Response | None:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/v1/simulations/{id}/results", headers=self.headers, timeout=60.0)
            self._hang_up()
            return None

        answer = until(answered, message="no results")
        assert answer is not None
        return sorted((json.loads(line) for line in answer.text.splitlines()), key=lambda one: one["task"])

    def messages(self, id: str) -> list[str]:
        """Return the messages of a simulation's launch events."""
        with (
            contextlib.suppress(httpx.TransportError),
            httpx.stream("GET", f"{self.url}/v1/simulations/{id}/events", headers=self.headers, timeout=10.0) as answer,
        ):
            return list(_messages(answer.iter_lines()))
        return []

    # -- as an operator

    def pods(self, selector: str, namespace: str = "") -> list[Any]:
        """Return pods by their labels, by default in the project's namespace."""
        found: list[Any] = json.loads(
            self.cluster.kubectl("get", "pods", "-n", namespace or self.project, "-l", selector, "-o", "json")
        )["items"]
        return found

    def left(self) -> list[str]:
        """Return the objects that launches have left."""
        return self.cluster.launched(self.project, "-l", "windtunnel/launch")

    def until(self, so: Callable[[], object], what: str, patience: float = 180.0) -> None:
        """Wait for a condition."""
        self.cluster.until(lambda: bool(so()), what, patience)


@contextlib.contextmanager
def installed(cluster: Client, folder: Path, images: Mapping[str, str]) -> Iterator[Installed]:
    """Install the chart as a trial, and uninstall it afterwards."""
    found = Installed(cluster, folder, images)
    try:
        found.install()
        yield found
    finally:
        found.uninstall()


def _messages(lines: Iterator[str]) -> Iterator[str]:
    """Yield the messages of launch events, up to the latest event."""
    kind = ""
    for line in lines:
        if line.startswith("event:"):
            kind = line[6:].strip()
        elif line.startswith("data:") and kind == "launch":
            yield json.loads(line[5:])["message"]
        elif line.startswith(":"):
            return


def untimed(results: Sequence[Any]) -> list[Any]:
    """Return results without the values that differ between runs."""
    return [{key: value for key, value in one.items() if key != "timing"} for one in results]
