"""Platform fixtures: a release of the chart on a cluster, and requests to its API."""

import contextlib
import json
import socket
import subprocess
import tempfile
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
HELM_TIMEOUT = 700.0
#: Seconds until `kubectl port-forward` listens.
FORWARD_TIMEOUT = 20.0
#: Small requests: each of the tests' nodes reports the whole machine's resources.
REQUESTS = {"cpu": "20m", "memory": "1Gi"}
#: Names that submissions may give in these tests, by option; all others are refused.
ALLOWED = {
    "resources": ["example.com/*"],
    "networks": ["fast"],
    "claims": ["one-gpu"],
    "annotations": ["example.com/*"],
    "node_selector": ["kubernetes.io/*"],
    "exclusive": ["kubernetes.io/hostname"],
    "priority": ["simulations-*"],
    "image": ["*", "**/*"],
    "runtime_ref": ["plain"],
}
#: Node labels that the executor's options require, whatever a submission selects.
OPERATOR_LABELS = {"kubernetes.io/os": "linux"}


def values(server: str, *, trial: bool = True, **changes: Any) -> dict[str, Any]:
    """Return values of the chart: small resources; a trial without a token."""
    small = {"requests": {"cpu": "10m", "memory": "64Mi"}}
    repository, _, tag = server.rpartition(":")
    result: dict[str, Any] = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "settings": {"names": ["karrozzeria"], "leaseTtl": 5},
        "api": {"replicas": 2, "resources": small, "service": {"port": 5000}},
        "runnerApi": {"replicas": 1, "resources": small},
        "dispatch": {"replicas": 2, "resources": small},
        "jobs": {"resources": small},
        "scs": {"resources": small, "envoy": {"enabled": False}},
        "executors": {
            "cluster": {
                "workers": 2,
                "grace": 20,
                "allowed": ALLOWED,
                "options": {
                    "node_selector": OPERATOR_LABELS,
                    "runner": REQUESTS | {"memory": "256Mi"},
                    "evaluator": REQUESTS,
                    "model_server": REQUESTS,
                    "patience": 20,
                },
            }
        },
    }
    if trial:
        result |= {"trial": True, "settings": result["settings"] | {"anonymous": True}}
        result |= {"bundled": {name: store | {"resources": small} for name, store in stores.values().items()}}
    return result | changes


@contextlib.contextmanager
def image_folder() -> Iterator[Path]:
    """A temporary folder on the file system of the built images, whose archives are linked into it."""
    (ROOT / "var").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="images-", dir=ROOT / "var") as folder:
        yield Path(folder)


def import_images(cluster: Client, folder: Path, names: Iterable[str] = PLATFORM_IMAGES) -> dict[str, str]:
    """Import the platform's images and the stores' image on the nodes; return their references by name.

    The folder must exist as long as nodes can join.
    """
    references = {}
    for name in names:
        built = image(name)
        references[name] = built.reference
        # Nodes that join later get the same image, even if a newer image was built meanwhile.
        archive = folder / built.archive.name
        archive.hardlink_to(built.archive)
        cluster.import_image(archive)
    cluster.import_image(stores.image(folder))
    return references


class PlatformRelease:
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

    # -- installation

    def helm(self, *arguments: str) -> str:
        """Run helm as the administrator."""
        completed = self.try_helm(*arguments)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def try_helm(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run helm, which may fail; the release's values are its standard input where it reads values."""
        command = [tool("helm"), f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={self.namespace}", *arguments]
        return subprocess.run(
            command,
            input=json.dumps(self._values),
            capture_output=True,
            text=True,
            timeout=HELM_TIMEOUT,
            env=ENVIRON | {"HOME": str(self.folder)},
        )

    def prepare(self, **changes: Any) -> None:
        """Create the release's namespace, and set the values."""
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": self.namespace, "labels": restricted},
        }
        self.cluster.apply(namespace)
        self._values = values(self.images["server"], **changes)

    @property
    def settings(self) -> dict[str, Any]:
        """The platform's settings in the values of the next upgrade."""
        return dict(self._values["settings"])

    def set_values(self, **changes: Any) -> None:
        """Change the values of the next upgrade."""
        self._values = self._values | changes

    def install(self, **changes: Any) -> None:
        """Install the release and wait until the API answers."""
        self.prepare(**changes)
        # a trial's data is lost with its node, and tests cut the power of other nodes
        with self.cordon_all_except("node-0"):
            self.upgrade()
            self.wait_for_rollout()
        self.until(lambda: self.ready, "the API answers")

    def wait_for_rollout(self) -> None:
        """Wait until all pods of the platform's roles have the latest values."""
        for role in ("api", "runner-api", "dispatch", "jobs"):
            status = ["rollout", "status", "-n", self.namespace, f"deployment/{RELEASE}-{role}"]
            try:
                self.cluster.kubectl(*status, f"--timeout={PATIENCE:.0f}s", timeout=PATIENCE + 60)
            except RuntimeError as error:
                error.add_note(self.cluster.state())
                raise

    @contextlib.contextmanager
    def cordon_all_except(self, name: str) -> Iterator[None]:
        """Cordon all nodes except the named node while the block runs; a user's cluster is left unchanged."""
        nodes = self.node_names()
        cordoned = [node for node in nodes if node != name] if name in nodes else []
        for node in cordoned:
            self.cluster.kubectl("cordon", node)
        try:
            yield
        finally:
            for node in cordoned:
                self.cluster.kubectl("uncordon", node)

    def node_names(self) -> list[str]:
        """Return the names of the nodes."""
        return [name.removeprefix("node/") for name in self.cluster.kubectl("get", "nodes", "-o", "name").split()]

    def upgrade(self) -> None:
        """Upgrade the release to its values, also after some of its objects were deleted."""
        self.helm(*UPGRADE)

    def set_executor_options(self, **options: Any) -> None:
        """Change options of the executor, and wait until the roles have restarted with them."""
        executors = self._values["executors"]
        cluster = executors["cluster"]
        changed = cluster | {"options": cluster["options"] | options}
        self.set_values(executors=executors | {"cluster": changed})
        self.upgrade()
        self.wait_for_rollout()
        self.until(lambda: self.ready, "the API answers")

    def ready_warm_launches(self) -> list[str]:
        """Return the warm launches whose pods are ready."""
        selector = ["-n", self.project, "-l", "windtunnel/warm", "-o", "json"]
        jobsets = json.loads(self.cluster.kubectl("get", "jobsets", *selector))["items"]
        return [
            jobset["metadata"]["labels"]["windtunnel/launch"]
            for jobset in jobsets
            if any(group.get("ready") for group in jobset.get("status", {}).get("replicatedJobsStatus", []))
        ]

    def uninstall(self) -> None:
        """Uninstall the release, and delete everything that it created."""
        self._stop_forward()
        self.helm("uninstall", RELEASE, "--ignore-not-found")
        for namespace in (self.project, self.namespace):
            self.cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=false")

    def ensure_jobset_answers(self) -> None:
        """Ensure that JobSet answers: an outage of the API server stops it, and its restart is slow."""
        path = "/apis/apps/v1/namespaces/jobset-system/deployments/jobset-controller-manager"
        if not (self.cluster.get(path) or {}).get("status", {}).get("availableReplicas"):
            self.cluster.kubectl("delete", "pods", "-n", "jobset-system", "--all", "--force", "--grace-period=0")
        self.cluster.rolled_out("jobset-system", "jobset-controller-manager")

    # -- as a user

    @property
    def url(self) -> str:
        """URL of the API."""
        if self._forward is None or self._forward.poll() is not None:
            port = self._values["api"].get("service", {}).get("port", 80)
            command = ["port-forward", "-n", self.namespace, f"service/{RELEASE}-api", f"{self.port}:{port}"]
            kubectl = [str(self.cluster.program), f"--kubeconfig={self.cluster.kubeconfig}", *command]
            devnull = subprocess.DEVNULL
            environment = ENVIRON | {"HOME": str(self.folder)}
            self._forward = subprocess.Popen(kubectl, stdin=devnull, stdout=devnull, stderr=devnull, env=environment)
            self._wait_until_forwarded()
        return f"http://127.0.0.1:{self.port}"

    def _wait_until_forwarded(self) -> None:
        """Wait until the forward listens or has ended: a request before that would fail as if it had ended."""

        def listens_or_ended() -> bool:
            if self._forward is None or self._forward.poll() is not None:
                return True
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0):
                return True
            return False

        with contextlib.suppress(AssertionError):  # the next request fails and starts a new forward
            until(listens_or_ended, FORWARD_TIMEOUT)

    @property
    def ready(self) -> bool:
        """Whether the API is ready."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5.0).status_code == 200
        except httpx.HTTPError:
            self._stop_forward()
            return False

    def _stop_forward(self) -> None:
        """Stop a forward whose pod may no longer exist: kubectl keeps forwarding to the first pod that it chose."""
        if self._forward is not None:
            self._forward.kill()
            self._forward.wait()

    def get(self, path: str) -> Any:
        """Send a request, and once more if the forward has just ended."""

        def response_or_none() -> httpx.Response | None:
            with contextlib.suppress(httpx.TransportError):
                response = httpx.get(self.url + path, headers=self.headers, timeout=30.0)
                if response.status_code < 500:
                    return response
            self._stop_forward()
            return None

        response = until(response_or_none, 180.0, lambda: f"{path} is not answered\n{self.cluster.state()}")
        assert response is not None
        response.raise_for_status()
        return response.json()

    def submit(self, **request: Any) -> str:
        """Submit a simulation and return its id."""
        self.until(lambda: self.ready, "the API answers")
        response = httpx.post(f"{self.url}/v1/simulations", json=request, headers=self.headers, timeout=60.0)
        assert response.status_code == 201, response.text
        id: str = response.json()["id"]
        return id

    def upload(self, name: str, model: bytes) -> None:
        """Upload a model."""
        self.until(lambda: self.ready, "the API answers")
        response = httpx.put(f"{self.url}/v1/models/{name}", content=model, headers=self.headers, timeout=60.0)
        assert response.status_code == 201, response.text

    def cancel(self, id: str) -> None:
        """Cancel a simulation."""
        self.until(lambda: self.ready, "the API answers")
        httpx.post(f"{self.url}/v1/simulations/{id}/cancel", timeout=60.0)

    def wait_for_end(self, id: str, timeout: float = 180.0) -> Any:
        """Wait for the end of a simulation and return it."""
        simulation: dict[str, Any] = {}

        def has_ended() -> bool:
            simulation.update(self.get(f"/v1/simulations/{id}"))
            return simulation["state"] in FINAL

        until(has_ended, timeout, lambda: f"{simulation}\n{self.messages(id)}\n{self.cluster.state()}")
        return simulation

    def results(self, id: str) -> list[Any]:
        """Return all results, in the order of their tasks."""

        def response_or_none() -> httpx.Response | None:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{self.url}/v1/simulations/{id}/results", headers=self.headers, timeout=60.0)
            self._stop_forward()
            return None

        response = until(response_or_none, message="the results are not served")
        assert response is not None
        return sorted((json.loads(line) for line in response.text.splitlines()), key=lambda result: result["task"])

    def messages(self, id: str) -> list[str]:
        """Return the messages of a simulation's launch events."""
        with (
            contextlib.suppress(httpx.TransportError),
            httpx.stream(
                "GET", f"{self.url}/v1/simulations/{id}/events", headers=self.headers, timeout=10.0
            ) as response,
        ):
            return list(_messages(response.iter_lines()))
        return []

    # -- as an operator

    def pods(self, selector: str, namespace: str = "") -> list[Any]:
        """Return pods by their labels, by default in the project's namespace."""
        pods: list[Any] = json.loads(
            self.cluster.kubectl("get", "pods", "-n", namespace or self.project, "-l", selector, "-o", "json")
        )["items"]
        return pods

    def remaining_objects(self) -> list[str]:
        """Return the objects of launches that still exist."""
        return self.cluster.launch_objects(self.project, "-l", "windtunnel/launch")

    def until(self, condition: Callable[[], object], description: str, timeout: float = 180.0) -> None:
        """Wait for a condition."""
        self.cluster.until(lambda: bool(condition()), description, timeout)


@contextlib.contextmanager
def installed_platform(cluster: Client, folder: Path, images: Mapping[str, str]) -> Iterator[PlatformRelease]:
    """Install the chart as a trial, and uninstall it afterwards."""
    release = PlatformRelease(cluster, folder, images)
    try:
        release.install()
        yield release
    finally:
        release.uninstall()


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


def without_timing(results: Sequence[Any]) -> list[Any]:
    """Return results without the values that differ between runs."""
    return [{key: value for key, value in result.items() if key != "timing"} for result in results]
